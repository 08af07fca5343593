//! Stands for `otlp.rs` in a program without that feature.

use std::time::Duration;

use crate::spans::Spans;

/// Sends spans. There is none.
pub(super) enum Export {}

impl Export {
    pub(super) fn start(flag: Option<&str>) -> Result<Option<Self>, String> {
        match flag {
            None => Ok(None),
            Some(url) => Err(format!(
                "--otlp-endpoint: {url:?} gets no spans from a program without the feature otlp; install it with \
                 --features otlp, or leave out the flag"
            )),
        }
    }

    pub(super) fn spans(&self) -> Spans {
        match *self {}
    }

    #[expect(clippy::unused_async, reason = "the other one waits")]
    pub(super) async fn end(self, _: Duration) {
        match self {}
    }
}
