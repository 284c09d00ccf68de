//! Threads that compute masks while the engine computes steps.

use std::num::NonZero;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

type Job = Box<dyn FnOnce() + Send>;

/// A few threads, which end when this is dropped.
#[derive(Debug, Clone)]
pub(super) struct Workers {
    jobs: Sender<Job>,
}

impl Workers {
    /// One thread per four of the machine's, and four at most: a mask takes a fraction of a millisecond, a step tens of
    /// them on every core.
    ///
    /// # Errors
    /// If there can be no thread.
    pub(super) fn start() -> std::io::Result<Self> {
        let count = thread::available_parallelism().map_or(1, NonZero::get).div_ceil(4).min(4);
        let (jobs, received) = mpsc::channel();
        let received = Arc::new(Mutex::new(received));
        for _ in 0..count {
            let received = received.clone();
            thread::Builder::new().name("smelt-grammar".into()).spawn(move || work(&received))?;
        }
        Ok(Self { jobs })
    }

    /// Does `job` on one of the threads; what it returns arrives.
    pub(super) fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Receiver<T> {
        let (sender, receiver) = mpsc::sync_channel(1);
        // Who has gone away wants no result; if no thread is left, the receiver learns it.
        let _ = self.jobs.send(Box::new(move || drop(sender.send(job()))));
        receiver
    }
}

fn work(received: &Mutex<Receiver<Job>>) {
    loop {
        let job = received.lock().unwrap_or_else(PoisonError::into_inner).recv();
        match job {
            Ok(job) => job(),
            Err(_) => return,
        }
    }
}
