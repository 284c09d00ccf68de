//! Engines in processes of their own: a crash, a kill for want of memory or a step that never ends takes one model's
//! open requests with it, and nothing else.
//!
//! ```text
//! handle      a way to a supervisor, for any task
//! supervisor  one per model: loads, passes requests and events, watches, restarts, lets go
//!   process     a child process, its orders and reports
//!   memory      who may be loaded at a time
//! protocol    what is said
//! child       the other side: the engine's process
//! ```
//!
//! Architecture Invariant: nothing is sent again by itself. An attempt ends with one event, and what of it the engine had
//! computed needs no rolling back: the cache is found by its contents, so that forgetting the attempt is enough.

mod child;
mod handle;
mod memory;
mod process;
mod protocol;
mod supervisor;

pub use child::{DaemonError, run_daemon};
pub use process::Launch;

pub(crate) use handle::{Handle, Ticket, Work};
pub(crate) use memory::{Memory, Need};
pub(crate) use protocol::{Event, Request, Requirement, Thoughts, Token};
pub(crate) use supervisor::{State, Supervisor, Terms};
