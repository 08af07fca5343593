//! What the body of a response says that it has used.

mod conversation;
mod settled;
