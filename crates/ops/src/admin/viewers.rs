//! The viewers of the page, each with a stream of server-sent events.

use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{self, Receiver, Sender};

/// All viewers that read the events at the same time.
#[derive(Debug, Default)]
pub(super) struct Viewers(Mutex<Audience>);

#[derive(Debug, Default)]
struct Audience {
    viewers: Vec<Viewer>,
    has_ended: bool,
}

#[derive(Debug)]
struct Viewer {
    events: Sender<Bytes>,
    /// The number of events since it has its place, and of those that it has missed in a row.
    sent: u32,
    missed: u32,
}

/// Why there is no stream for a viewer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoRoom {
    TooMany,
    Ended,
}

/// The body of a response: events, until the viewer goes away, is dropped, or the service ends.
#[derive(Debug)]
pub(super) struct Events(Receiver<Bytes>);

impl Viewers {
    /// The most viewers: a page that is left open in many browsers must not use up the
    /// connections.
    pub(super) const MOST: usize = 16;

    /// A viewer that takes no event for this many seconds loses its place. A viewer that does not read seems to take
    /// events until the buffers of its connection are full, which takes minutes. So after as many seconds a viewer also loses
    /// its place to a new one, if all are taken. A browser then takes another.
    const SECONDS: u32 = 10;

    /// Gives a viewer a place, and this event.
    pub(super) fn join(&self, first: impl FnOnce() -> Bytes) -> Result<Events, NoRoom> {
        let mut state = self.lock();
        if state.has_ended {
            return Err(NoRoom::Ended);
        }
        state.viewers.retain(|viewer| !viewer.events.is_closed());
        if state.viewers.len() >= Self::MOST {
            // The first has its place for longest.
            match state.viewers.first() {
                Some(oldest) if oldest.sent >= Self::SECONDS => drop(state.viewers.remove(0)),
                _ => return Err(NoRoom::TooMany),
            }
        }
        // One event waits at a time: a snapshot is useless when the next one is there.
        let (events, stream) = mpsc::channel(1);
        // There is room for one.
        let _ = events.try_send(first());
        state.viewers.push(Viewer {
            events,
            sent: 0,
            missed: 0,
        });
        Ok(Events(stream))
    }

    /// Returns whether there is a viewer.
    pub(super) fn are_any(&self) -> bool {
        self.lock()
            .viewers
            .iter()
            .any(|viewer| !viewer.events.is_closed())
    }

    /// Sends an event to all. A viewer whose last event was not taken misses this one.
    pub(super) fn send(&self, event: &Bytes) {
        self.lock().viewers.retain_mut(|viewer| {
            viewer.sent = viewer.sent.saturating_add(1);
            match viewer.events.try_send(event.clone()) {
                Ok(()) => {
                    viewer.missed = 0;
                    true
                }
                Err(TrySendError::Full(_)) => {
                    viewer.missed += 1;
                    viewer.missed < Self::SECONDS
                }
                Err(TrySendError::Closed(_)) => false,
            }
        });
    }

    /// Ends all streams, and lets no other viewer join.
    pub(super) fn end(&self) {
        let mut state = self.lock();
        state.has_ended = true;
        state.viewers.clear();
    }

    fn lock(&self) -> MutexGuard<'_, Audience> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Body for Events {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.0
            .poll_recv(cx)
            .map(|event| Some(Ok(Frame::data(event?))))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    fn event() -> Bytes {
        Bytes::from_static(b"data: {}\n\n")
    }

    #[test]
    fn sixteen_of_twenty_viewers_have_a_place_and_one_that_leaves_frees_it() {
        let viewers = Viewers::default();
        let joined: Vec<_> = (0..20).map(|_| viewers.join(event)).collect();
        let (mut served, refused): (Vec<_>, Vec<_>) = joined.into_iter().partition(Result::is_ok);
        assert_eq!((served.len(), refused.len()), (16, 4));
        assert!(
            refused
                .iter()
                .all(|place| matches!(place, Err(NoRoom::TooMany)))
        );
        served.pop();
        assert!(viewers.join(event).is_ok());
    }

    #[test]
    fn a_viewer_that_does_not_read_loses_its_place() {
        let viewers = Viewers::default();
        let mut slow = viewers.join(event).unwrap();
        let mut reader = viewers.join(event).unwrap();
        for _ in 0..Viewers::SECONDS {
            assert_eq!(viewers.lock().viewers.len(), 2);
            reader.0.try_recv().unwrap();
            viewers.send(&event());
        }
        assert_eq!(viewers.lock().viewers.len(), 1);
        // The viewer gets the event that was waiting, and no other.
        assert!(slow.0.try_recv().is_ok());
        assert_eq!(
            slow.0.try_recv(),
            Err(mpsc::error::TryRecvError::Disconnected)
        );
        assert!(reader.0.try_recv().is_ok());
    }

    /// All of them read, as viewers seem to whose connections have room.
    #[test]
    fn viewers_lose_their_places_to_new_ones_in_turn() {
        let viewers = Viewers::default();
        let mut places: VecDeque<_> = (0..Viewers::MOST)
            .map(|_| viewers.join(event).unwrap())
            .collect();
        let pass = |places: &mut VecDeque<Events>| {
            for place in places {
                place.0.try_recv().unwrap();
            }
            viewers.send(&event());
        };
        for _ in 0..Viewers::SECONDS {
            assert_eq!(viewers.join(event).unwrap_err(), NoRoom::TooMany);
            pass(&mut places);
        }
        for _ in 0..Viewers::MOST {
            places.push_back(viewers.join(event).unwrap());
            let mut oldest = places.pop_front().unwrap();
            assert!(oldest.0.try_recv().is_ok());
            assert!(oldest.0.is_closed());
        }
        assert_eq!(viewers.join(event).unwrap_err(), NoRoom::TooMany);
        assert!(places.iter().all(|place| !place.0.is_closed()));
    }

    #[test]
    fn all_streams_end_together_and_none_begins_after() {
        let viewers = Viewers::default();
        let mut stream = viewers.join(event).unwrap();
        viewers.end();
        assert!(stream.0.try_recv().is_ok());
        assert_eq!(
            stream.0.try_recv(),
            Err(mpsc::error::TryRecvError::Disconnected)
        );
        assert_eq!(viewers.join(event).unwrap_err(), NoRoom::Ended);
    }
}
