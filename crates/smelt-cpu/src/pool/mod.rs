//! A persistent thread pool for regions of a few microseconds.
//!
//! Waiting threads spin briefly, so that the next region of a step starts within a microsecond, and then park, so that
//! an idle engine uses no CPU. The caller takes part as worker 0. Work is handed out as chunks through counters, so a
//! slow or busy core takes fewer of them; which worker computes a chunk never changes what it computes.

use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*, fence};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

/// How long a waiting thread spins before it parks: longer than the serial pieces between two regions of a step.
const SPIN: Duration = Duration::from_micros(50);
/// The same where threads share a core: whoever spins keeps the other from working.
const SPIN_OVERSUBSCRIBED: Duration = Duration::from_micros(2);

/// The region that runs: a closure whose borrow [`Pool::each`] upholds by not returning before all workers are done.
type Job = *const (dyn Fn(usize) + Sync);

/// What one thread looks at to begin a region, on lines of its own (two, as CPUs fetch them in pairs): a line takes
/// 60 to 200 ns from core to core, so each thread waits for one, not for one each of a job, a counter and a signal.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Desk {
    /// Counts regions; a change tells the worker that `job` is new.
    generation: AtomicU64,
    job: UnsafeCell<Option<Job>>,
    /// The next chunk of this thread's run.
    next_chunk: AtomicUsize,
    parked: AtomicBool,
}

// SAFETY: `job` is the only field that isn't already `Sync` and `Send`. The caller writes it while `remaining` is 0, when
// the worker doesn't look at it, and publishes it by `generation`; the closure that it points to is `Sync`.
unsafe impl Sync for Desk {}
// SAFETY: as above.
unsafe impl Send for Desk {}

/// A value on lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Padded<T>(T);

struct Shared {
    /// One per thread; the caller's has only a counter.
    desks: Vec<Desk>,
    /// Workers that haven't finished the region.
    remaining: Padded<AtomicUsize>,
    caller_parked: AtomicBool,
    caller: Mutex<Option<Thread>>,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    stop: AtomicBool,
    spin: Duration,
}

/// The pool. It isn't `Sync`, and a region's closure is, so no region can start another one.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// Regions so far.
    generation: Cell<u64>,
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
            desks: (0..threads).map(|_| Desk::default()).collect(),
            remaining: Padded::default(),
            caller_parked: AtomicBool::new(false),
            caller: Mutex::new(None),
            panic: Mutex::new(None),
            stop: AtomicBool::new(false),
            spin: if oversubscribed { SPIN_OVERSUBSCRIBED } else { SPIN },
        });
        let mut pool = Self { shared, workers: Vec::new(), generation: Cell::new(0) };
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

    /// Runs `f(worker, chunk)` for each chunk and waits. Chunks begin in their order, each on whichever worker is free:
    /// for few large ones, of which the largest come first. Of the workers (below [`Pool::threads`]) no two run at once
    /// under one index.
    ///
    /// # Panics
    /// If `f` panicked on any thread, with that panic, after every thread has stopped.
    pub(crate) fn chunks(&self, chunks: usize, f: impl Fn(usize, usize) + Sync) {
        self.share(chunks, (1, 0), |worker, chunk, _| f(worker, chunk));
    }

    /// As [`Pool::chunks`], for many small chunks that lie side by side in memory. Every worker has a run of neighbours,
    /// the same one whenever a region has as many chunks, so memory is read in order, by the thread that read it
    /// before, and threads don't meet at a counter. A worker whose run is used up takes chunks of others' runs, but not
    /// their last `leave`, which the owner, in its stride, has sooner. `f` also learns whether it has just computed
    /// the chunk before.
    ///
    /// # Panics
    /// As [`Pool::chunks`].
    pub(crate) fn runs(&self, chunks: usize, leave: usize, f: impl Fn(usize, usize, bool) + Sync) {
        self.share(chunks, (self.threads(), leave), f);
    }

    /// Cuts the chunks into `runs` runs, at most one per thread, and computes them all.
    fn share(&self, chunks: usize, (runs, leave): (usize, usize), f: impl Fn(usize, usize, bool) + Sync) {
        if chunks <= 1 || self.workers.is_empty() {
            (0..chunks).for_each(|chunk| f(0, chunk, chunk > 0));
            return;
        }
        let desks = &self.shared.desks[..runs];
        let start = |run: usize| chunks * run / runs;
        for (run, desk) in desks.iter().enumerate() {
            desk.next_chunk.store(start(run), Relaxed);
        }
        self.each(&|worker| {
            let mut expected = usize::MAX;
            for run in (0..runs).map(|i| (worker + i) % runs) {
                let (next, end) = (&desks[run].next_chunk, start(run + 1));
                let left = if run == worker { 0 } else { leave };
                // Looking first leaves the counter's line with its owner, if there is nothing to take.
                while next.load(Relaxed) + left < end {
                    let chunk = next.fetch_add(1, Relaxed);
                    if chunk < end {
                        f(worker, chunk, chunk == expected);
                        expected = chunk + 1;
                    }
                }
            }
        });
    }

    /// Runs `f(worker)` once on every thread and waits for all.
    pub(crate) fn each(&self, f: &(dyn Fn(usize) + Sync)) {
        let shared = &*self.shared;
        // SAFETY: only the lifetime changes. Workers call the closure before they decrement `remaining`, and
        // `finish` below waits for that before this function returns, by unwinding too.
        let job =
            unsafe { std::mem::transmute::<&(dyn Fn(usize) + Sync), &'static (dyn Fn(usize) + Sync)>(f) };
        shared.remaining.0.store(self.workers.len(), Relaxed);
        for desk in &shared.desks[1..] {
            // SAFETY: `remaining` was 0 before (the last region is over, and regions don't nest: see `Pool`), so the
            // worker doesn't read `job` until `generation` changes.
            unsafe { *desk.job.get() = Some(job) };
        }
        self.begin();
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

    /// Tells every worker that a region begins.
    fn begin(&self) {
        self.generation.update(|generation| generation + 1);
        for desk in &self.shared.desks[1..] {
            desk.generation.store(self.generation.get(), Release);
        }
        // Between the store of a generation and the look at `parked`; the worker has one between the other two, so
        // either it sees the generation or it is seen parked.
        fence(SeqCst);
        for (desk, worker) in self.shared.desks[1..].iter().zip(&self.workers) {
            if desk.parked.load(Relaxed) {
                worker.thread().unpark();
            }
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
        self.shared.stop.store(true, Relaxed);
        self.begin();
        for worker in self.workers.drain(..) {
            // A worker catches its jobs' panics, so there is nothing to learn from its end.
            let _ = worker.join();
        }
    }
}

/// A worker's life.
fn work(shared: &Shared, worker: usize) {
    let desk = &shared.desks[worker];
    let mut seen = 0;
    loop {
        let new = || desk.generation.load(Acquire) != seen;
        if !spin_until(shared.spin, new) {
            desk.parked.store(true, Relaxed);
            fence(SeqCst);
            while !new() {
                std::thread::park();
            }
            desk.parked.store(false, Relaxed);
        }
        seen += 1;
        if shared.stop.load(Relaxed) {
            return;
        }
        // SAFETY: the caller wrote `job` before it changed `generation` and waits for `remaining`.
        let job = unsafe { (*desk.job.get()).map(|job| &*job) };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| job.map(|job| job(worker)))) {
            shared.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(panic);
        }
        if shared.remaining.0.fetch_sub(1, SeqCst) == 1 && shared.caller_parked.load(SeqCst) {
            let caller = shared.caller.lock().unwrap_or_else(PoisonError::into_inner);
            caller.iter().for_each(Thread::unpark);
        }
    }
}

/// Spins until `done` or until about `limit` has passed; whether it is done.
fn spin_until(limit: Duration, done: impl Fn() -> bool) -> bool {
    /// Checks between two looks at the clock, which takes as long as a few of them.
    const CHECKS: usize = 32;
    let mut start = None;
    loop {
        for _ in 0..CHECKS {
            if done() {
                return true;
            }
            std::hint::spin_loop();
        }
        if start.get_or_insert_with(Instant::now).elapsed() >= limit {
            return false;
        }
    }
}

#[cfg(test)]
mod tests;
