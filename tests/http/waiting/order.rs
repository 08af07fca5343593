//! The order in which waiting requests go on.

use http::StatusCode;
use tokio::time::sleep;
use tower_ratelimit::{FixedWindow, TokenBucket};

use super::{INTERVAL, SECOND, bucket, by_user, costing, layer, told, turns};
use crate::arrivals::{Arrivals, behind, request, send};
use crate::exchange::{cost, global};

#[tokio::test(start_paused = true)]
async fn waiting_requests_go_on_in_order_as_soon_as_they_can_with_the_numbers_of_then() {
    let arrivals = Arrivals::new();
    let service = behind(
        &layer([by_user("a", bucket()).wait_up_to(SECOND)]),
        &arrivals,
    );
    let mut sent = Vec::new();
    for number in 0..=5 {
        sent.push(send(&service, request(1, number)).await);
    }
    for sent in sent {
        let answer = sent.await.unwrap();
        assert_eq!(answer.status, StatusCode::OK);
        assert_eq!(answer.field("ratelimit"), Some(r#""a";r=0;t=1"#));
        assert_eq!(answer.field("retry-after"), None);
    }
    assert_eq!(
        arrivals.log(),
        turns((0..=5).map(|number| (number, number)))
    );
}

#[tokio::test(start_paused = true)]
async fn no_request_overtakes_even_if_there_is_enough_for_it_and_not_for_the_one_in_front() {
    let arrivals = Arrivals::new();
    let bucket = TokenBucket::per_second(5).burst(5);
    let service = behind(
        &layer([by_user("a", bucket).cost(cost).wait_up_to(9 * SECOND)]),
        &arrivals,
    );
    send(&service, costing(0, 4)).await;
    send(&service, costing(1, 5)).await;
    send(&service, costing(2, 1)).await;
    // A request of cost 0 takes no turn.
    send(&service, costing(3, 0)).await;
    sleep(9 * SECOND).await;
    assert_eq!(arrivals.log(), turns([(0, 0), (3, 0), (1, 4), (2, 5)]));
}

#[tokio::test(start_paused = true)]
async fn requests_that_stay_leave_in_order_and_close_the_gaps_of_the_others() {
    let arrivals = Arrivals::new();
    let service = behind(
        &layer([by_user("a", bucket()).wait_up_to(100 * SECOND)]),
        &arrivals,
    );
    let mut waiting = Vec::new();
    for number in 0..=100 {
        waiting.push(send(&service, request(1, number)).await);
    }
    let leaves = |number: u32| (number % 10 < 3 || number == 100) && number > 0;
    for (number, sent) in (0..).zip(&waiting) {
        if leaves(number) && number % 2 == 0 {
            sent.abort();
        }
    }
    sleep(INTERVAL / 2).await;
    // One of them is the request at the front.
    for (number, sent) in (0..).zip(&waiting) {
        if leaves(number) {
            sent.abort();
        }
    }
    sleep(101 * INTERVAL).await;
    let stay = (0..=100_u32).filter(|number| !leaves(*number));
    assert_eq!(arrivals.log(), turns(stay.zip(0..)));
}

#[tokio::test(start_paused = true)]
async fn when_all_have_gone_away_the_next_is_asked_about_as_if_no_request_had_been_there() {
    let arrivals = Arrivals::new();
    let service = behind(
        &layer([by_user("a", bucket()).wait_up_to(SECOND)]),
        &arrivals,
    );
    let mut waiting = Vec::new();
    for number in 0..4 {
        waiting.push(send(&service, request(1, number)).await);
    }
    for sent in waiting.iter().rev() {
        sent.abort();
    }
    sleep(INTERVAL).await;
    send(&service, request(1, 4)).await.await.unwrap();
    assert_eq!(arrivals.log(), turns([(0, 0), (4, 1)]));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_long_for_its_own_limit_does_not_hold_up_those_that_wait_for_the_common_one()
 {
    let arrivals = Arrivals::new();
    let layer = layer([
        global("all", bucket()).wait_up_to(60 * SECOND),
        by_user("user", FixedWindow::per_minute(1)).wait_up_to(60 * SECOND),
    ]);
    let service = behind(&layer, &arrivals);
    for number in 0..3 {
        send(&service, request(1, number)).await;
    }
    for user in 2..6 {
        send(&service, request(user, user + 1)).await;
    }
    sleep(30 * SECOND).await;
    assert_eq!(
        arrivals.log(),
        turns([(0, 0), (3, 1), (4, 2), (5, 3), (6, 4)])
    );
    // At the next minute the second of the first user goes on; the third was told two minutes.
    sleep(31 * SECOND).await;
    assert_eq!(arrivals.log()[5..], [(1, 60 * SECOND)]);
}

/// Requests of low priority that waited filled the line of a key. Any other request was then refused at once, though the
/// reserve was untouched.
#[tokio::test(start_paused = true)]
async fn low_priority_holds_up_no_request_that_may_use_the_reserve_and_overtakes_none() {
    let arrivals = Arrivals::new();
    let policy = global("api", TokenBucket::per_second(5).burst(20)).reserve(10);
    let policy = policy.low_priority(|head| head.headers().contains_key("x-low"));
    let service = behind(
        &layer([policy.wait_up_to(9 * SECOND).wait_places(3)]),
        &arrivals,
    );
    let low = |number| {
        let mut request = request(1, number);
        request.headers_mut().insert("x-low", 1.into());
        request
    };
    for number in 0..13 {
        send(&service, low(number)).await;
    }
    let refused = send(&service, low(13)).await.await.unwrap();
    assert_eq!(
        told(&refused),
        Some(4 * INTERVAL),
        "behind three of low priority"
    );
    for number in 14..24 {
        let answer = send(&service, request(1, number)).await.await.unwrap();
        assert_eq!(answer.status, StatusCode::OK, "it uses the reserve");
    }
    // Others wait for the whole limit, in places of their own.
    for number in 24..27 {
        send(&service, request(1, number)).await;
    }
    let refused = send(&service, request(1, 27)).await.await.unwrap();
    assert_eq!(told(&refused), Some(4 * INTERVAL), "behind three others");
    sleep(9 * SECOND).await;
    let at_once = (0..10).chain(14..24).map(|number| (number, 0));
    let others = (24..27).zip(1..);
    // By then ten units of the reserve are free again.
    let low = (10..13).zip(14..);
    assert_eq!(arrivals.log(), turns(at_once.chain(others).chain(low)));
}
