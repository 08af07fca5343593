use std::time::{Duration, Instant};
use tower_ratelimit::*;

fn algos() -> Vec<Algorithm> {
    ["fixed-window 5/minute","anchored-window 5/minute","sliding-window 5/minute","sliding-slots 5/minute slots 10","sliding-log 5/minute","token-bucket 5/second burst 7","token-bucket-interval 5/second burst 7","leaky-bucket 5/second capacity 3","gcra 999983/day burst 12","leaky-queue 5/second places 3"].iter().map(|t| t.parse().unwrap()).collect()
}
#[tokio::test]
async fn agree() {
    let clock = ManualClock::new();
    let mut at = 1_790_000_000_123_456u64;
    let mut seed = 12345u64;
    let mut rnd = |n: u64| { seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407); (seed >> 33) % n };
    let tag = std::process::id();
    for (i, a) in algos().into_iter().enumerate() {
        let store = RedisStore::connect("redis://127.0.0.1:7777/").await.unwrap().clock(clock.clone());
        let mem = MemoryStore::new().clock(clock.clone());
        let r = Limiter::builder().policy(Policy::new("a", a)).store(store).build().unwrap();
        let m = Limiter::builder().policy(Policy::new("a", a)).store(mem).build().unwrap();
        let key = format!("{tag}-{i}");
        for step in 0..300 {
            at += match rnd(6) { 0 => 0, 1 => rnd(100), 2 => 200_000, 3 => rnd(3_000_000), 4 => rnd(70_000_000), _ => 1000 };
            clock.set_micros(Micros::new(at));
            let what = rnd(20);
            let cost = rnd(5) as u32;
            match what {
                0 => { m.refund_now(&*key, cost); r.refund(&*key, cost).await.unwrap(); }
                1 => { m.reset_now(&*key); r.reset(&*key).await.unwrap(); }
                2 => { m.block_now(&*key, Duration::from_micros(100_000)); r.block(&*key, Duration::from_micros(100_000)).await.unwrap(); }
                3 => { m.unblock_now(&*key); r.unblock(&*key).await.unwrap(); }
                4|5 => { assert_eq!(format!("{:?}", m.peek_now(&*key, cost)), format!("{:?}", r.peek(&*key, cost).await.unwrap()), "{a} step {step} peek {cost}"); }
                _ => { assert_eq!(format!("{:?}", m.check_now(&*key, cost)), format!("{:?}", r.check(&*key, cost).await.unwrap()), "{a} step {step} cost {cost}"); }
            }
        }
        println!("{a} ok");
    }
}
#[tokio::test]
async fn speed() {
    let store = RedisStore::builder().remember_denials_for(Duration::ZERO).connect("redis://127.0.0.1:7777/").await.unwrap();
    for a in algos() {
        let r = Limiter::builder().policy(Policy::new("s", a)).store(store.clone()).build().unwrap();
        let t = Instant::now();
        for _ in 0..2000 { let _ = r.check("x", 1).await.unwrap(); }
        println!("{a}: {:?}", t.elapsed()/2000);
    }
    let r = Limiter::builder().policy(Policy::new("s", algos()[0])).store(RedisStore::new("redis://127.0.0.1:7777/").unwrap()).build().unwrap();
    let t = Instant::now();
    for _ in 0..2000 { let _ = r.check("x", 1).await.unwrap(); }
    println!("remembered: {:?}", t.elapsed()/2000);
    println!("{}", RedisStore::new("redis://127.0.0.1:7777/").unwrap().store_key(&Policy::new("s", algos()[3]), "x"));
}
