//! What the body of a response says that it has used, and what the body of a request says that it asks for.

mod ahead;
mod conversation;
mod crowd;
mod mcp;
mod money;
mod requests;
mod settled;
