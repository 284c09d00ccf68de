//! A persistent thread pool for regions of a few microseconds.
//!
//! Waiting threads spin briefly, so that the next region of a step starts within a microsecond, and then park, so that
//! an idle engine uses no CPU. The caller takes part as worker 0. Work is handed out as chunks through one counter, so
//! a slow or busy core takes fewer of them; which worker computes a chunk never changes what it computes.

use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

/// How long a waiting thread spins before it parks: longer than the serial pieces between two regions of a step.
const SPIN: Duration = Duration::from_micros(50);
/// The same where threads share a core: whoever spins keeps the other from working.
const SPIN_OVERSUBSCRIBED: Duration = Duration::from_micros(2);

/// Keeps what different threads write on different cache lines (two, as CPUs fetch lines in pairs).
#[derive(Debug, Default)]
#[repr(align(128))]
struct Padded<T>(T);

/// The region that runs: a closure whose borrow [`Pool::run`] upholds by not returning before all workers are done.
type Job = *const (dyn Fn(usize) + Sync);

struct Shared {
    /// Counts regions; a change tells workers that `job` is new.
    generation: Padded<AtomicU64>,
    /// Workers that haven't finished the region.
    remaining: Padded<AtomicUsize>,
    next_chunk: Padded<AtomicUsize>,
    job: UnsafeCell<Option<Job>>,
    parked: Vec<Padded<AtomicBool>>,
    caller_parked: AtomicBool,
    caller: Mutex<Option<Thread>>,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    stop: AtomicBool,
    spin: Duration,
}

// SAFETY: `job` is the only field that isn't already `Sync` and `Send`. The caller writes it while `remaining` is 0,
// when no worker looks at it, and publishes it by `generation`; the closure that it points to is `Sync`.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

/// The pool. It isn't `Sync`, and a region's closure is, so no region can start another one.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    not_sync: PhantomData<Cell<()>>,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pool({} threads)", self.threads())
    }
}

impl Pool {
    /// A pool of `threads` threads, the caller's included.
    pub(crate) fn new(threads: usize, oversubscribed: bool) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            generation: Padded::default(),
            remaining: Padded::default(),
            next_chunk: Padded::default(),
            job: UnsafeCell::new(None),
            parked: (1..threads).map(|_| Padded::default()).collect(),
            caller_parked: AtomicBool::new(false),
            caller: Mutex::new(None),
            panic: Mutex::new(None),
            stop: AtomicBool::new(false),
            spin: if oversubscribed { SPIN_OVERSUBSCRIBED } else { SPIN },
        });
        let mut pool = Self { shared, workers: Vec::new(), not_sync: PhantomData };
        for worker in 1..threads {
            let shared = pool.shared.clone();
            let builder = std::thread::Builder::new().name(format!("smelt-cpu-{worker}"));
            pool.workers.push(builder.spawn(move || work(&shared, worker))?);
        }
        Ok(pool)
    }

    /// Threads, the caller's included.
    pub(crate) fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Runs `f(chunk)` for each chunk, on any worker, and waits. `f` also learns the worker (below [`Pool::threads`]),
    /// of which no two run at once under one index.
    ///
    /// # Panics
    /// If `f` panicked on any thread, with that panic, after every thread has stopped.
    pub(crate) fn chunks(&self, chunks: usize, f: impl Fn(usize, usize) + Sync) {
        if chunks <= 1 || self.workers.is_empty() {
            (0..chunks).for_each(|chunk| f(0, chunk));
            return;
        }
        let next = &self.shared.next_chunk.0;
        next.store(0, Relaxed);
        self.run(&|worker| {
            loop {
                let chunk = next.fetch_add(1, Relaxed);
                if chunk >= chunks {
                    return;
                }
                f(worker, chunk);
            }
        });
    }

    /// Runs `f(worker)` once on every thread and waits for all.
    fn run(&self, f: &(dyn Fn(usize) + Sync)) {
        let shared = &*self.shared;
        // SAFETY: only the lifetime changes. Workers call the closure before they decrement `remaining`, and
        // `finish` below waits for that before this function returns, by unwinding too.
        let job =
            unsafe { std::mem::transmute::<&(dyn Fn(usize) + Sync), &'static (dyn Fn(usize) + Sync)>(f) };
        // SAFETY: `remaining` is 0 here (the last region is over, and regions don't nest: see `Pool`), so no worker
        // reads `job` until `generation` changes.
        unsafe { *shared.job.get() = Some(job) };
        shared.remaining.0.store(self.workers.len(), Relaxed);
        // Sequentially consistent, as is the worker's side: either it sees the new generation before it parks, or we
        // see that it parked.
        shared.generation.0.fetch_add(1, SeqCst);
        for (parked, worker) in shared.parked.iter().zip(&self.workers) {
            if parked.0.load(SeqCst) {
                worker.thread().unpark();
            }
        }
        let own = catch_unwind(AssertUnwindSafe(|| f(0)));
        self.finish();
        let theirs = shared.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Err(panic) = own {
            resume_unwind(panic);
        }
        if let Some(panic) = theirs {
            resume_unwind(panic);
        }
    }

    /// Waits until every worker has finished the region.
    fn finish(&self) {
        let shared = &*self.shared;
        let done = || shared.remaining.0.load(Acquire) == 0;
        if spin_until(shared.spin, done) {
            return;
        }
        *shared.caller.lock().unwrap_or_else(PoisonError::into_inner) = Some(std::thread::current());
        shared.caller_parked.store(true, SeqCst);
        while shared.remaining.0.load(SeqCst) != 0 {
            std::thread::park();
        }
        shared.caller_parked.store(false, Relaxed);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, SeqCst);
        self.shared.generation.0.fetch_add(1, SeqCst);
        for worker in self.workers.drain(..) {
            worker.thread().unpark();
            // A worker catches its jobs' panics, so there is nothing to learn from its end.
            let _ = worker.join();
        }
    }
}

/// A worker's life.
fn work(shared: &Shared, worker: usize) {
    let mut seen = 0;
    loop {
        let generation = &shared.generation.0;
        if !spin_until(shared.spin, || generation.load(Acquire) != seen) {
            let parked = &shared.parked[worker - 1].0;
            parked.store(true, SeqCst);
            while generation.load(SeqCst) == seen {
                std::thread::park();
            }
            parked.store(false, Relaxed);
        }
        seen = generation.load(Acquire);
        if shared.stop.load(SeqCst) {
            return;
        }
        // SAFETY: the caller wrote `job` before it changed `generation` and waits for `remaining`.
        let job = unsafe { (*shared.job.get()).map(|job| &*job) };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| job.map(|job| job(worker)))) {
            shared.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(panic);
        }
        if shared.remaining.0.fetch_sub(1, SeqCst) == 1 && shared.caller_parked.load(SeqCst) {
            let caller = shared.caller.lock().unwrap_or_else(PoisonError::into_inner);
            caller.iter().for_each(Thread::unpark);
        }
    }
}

/// Spins until `done` or until `limit` has passed; whether it is done.
fn spin_until(limit: Duration, done: impl Fn() -> bool) -> bool {
    const CHECKS: usize = 32;
    let start = Instant::now();
    loop {
        for _ in 0..CHECKS {
            if done() {
                return true;
            }
            std::hint::spin_loop();
        }
        if start.elapsed() >= limit {
            return false;
        }
    }
}

#[cfg(test)]
mod tests;
