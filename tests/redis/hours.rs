//! Hours over Redis, by the server's clock, through a limiter and through a layer.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use tower::{BoxError, Layer, ServiceExt, service_fn};
use tower_ratelimit::decision::HoursNow;
use tower_ratelimit::service::Refused;
use tower_ratelimit::{AnchoredWindow, Hours, LimitLayer, Policy};

use crate::scene::{limiter, store};
use crate::support::redis::Server;

/// Returns the first midnight in UTC after a moment.
fn midnight(after: SystemTime) -> SystemTime {
    let since = after.duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let days = since.as_secs() / 86_400 + 1;
    SystemTime::UNIX_EPOCH + Duration::from_secs(86_400 * days)
}

fn told<'a>(hours: impl Iterator<Item = (&'a str, HoursNow)>) -> Vec<(String, SystemTime)> {
    hours
        .map(|(name, hours)| {
            assert_eq!(name, "by hours");
            let ends = hours.ends().expect("it ends at midnight");
            (hours.to_string(), ends)
        })
        .collect()
}

#[tokio::test]
async fn a_decision_an_inspection_and_a_refusal_tell_the_interval_and_when_it_ends() {
    let server = Server::start(&[]);
    let one = AnchoredWindow::per_day(1);
    let hours = Hours::in_zone("UTC").unwrap();
    let hours = hours.at("00:00-12:00", one).unwrap();
    let hours = hours.at("12:00-24:00", one).unwrap();
    let policy = Policy::new("by hours", AnchoredWindow::per_day(2));
    let limiter = limiter(&store(&server), [policy.hours(&hours).unwrap()]);

    let refused = Arc::new(Mutex::new(Vec::new()));
    let layer = {
        let refused = Arc::clone(&refused);
        let refuse = move |why: Refused| {
            *refused.lock().unwrap() = told(why.decision().unwrap().hours());
            Err::<(), BoxError>(why.into())
        };
        LimitLayer::new(limiter.clone(), |(): &()| "ann", refuse)
    };
    let service = layer.layer(service_fn(async |(): ()| Ok::<_, BoxError>(())));

    let before = SystemTime::now();
    let decision = limiter.check("ann", 1).await.unwrap();
    let seen = [
        told(decision.hours()),
        told(limiter.inspect("ann").await.unwrap().hours()),
        {
            service.oneshot(()).await.unwrap_err();
            refused.lock().unwrap().clone()
        },
    ];
    let after = SystemTime::now();

    let half = Duration::from_secs(43_200);
    for told in seen {
        let [(text, ends)] = told.as_slice() else {
            panic!("one policy has hours: {told:?}");
        };
        // In the half of the day that has begun; a second one may begin meanwhile.
        let is_first = *text == "00:00-12:00 (UTC)";
        assert!(is_first || *text == "12:00-24:00 (UTC)", "{text}");
        let ends_after = |moment| {
            let midnight = midnight(moment);
            let noon = midnight - half;
            if is_first && moment < noon {
                noon
            } else {
                midnight
            }
        };
        assert!(
            *ends == ends_after(before) || *ends == ends_after(after),
            "{ends:?}"
        );
        assert!(*ends > before);
    }
}
