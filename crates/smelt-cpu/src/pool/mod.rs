//! A persistent thread pool for regions of a few microseconds.
//!
//! Waiting threads spin briefly, so that the next region of a step starts within a microsecond, and then park, so that
//! an idle engine uses no CPU. While they wait they ask the cache for what they will read first ([`Pool::expect`]), so that
//! memory isn't idle where threads are. The caller takes part as worker 0. Work is handed out as chunks through counters, so a
//! slow or busy core takes fewer of them; which worker computes a chunk never changes what it computes.

use crate::isa::prefetch;
use std::any::Any;
use std::cell::{Cell, RefCell, UnsafeCell};
use std::num::NonZero;
use std::ops::Range;
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
    /// Written and read like `job`.
    expected: UnsafeCell<Expected>,
    /// The next chunk of this thread's run.
    next_chunk: AtomicUsize,
    parked: AtomicBool,
}

// SAFETY: `job` and `expected` are the only fields that aren't already `Sync` and `Send`. The caller writes them while
// `remaining` is 0, when the worker doesn't look at them, and publishes them by `generation`; the closure that `job` points
// to is `Sync`.
unsafe impl Sync for Desk {}
// SAFETY: as above.
unsafe impl Send for Desk {}

/// Where one or two stretches of memory begin that a thread will read side by side, and how many bytes of each it may ask
/// for before. These are addresses, not borrows: nothing but prefetches uses them.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Expected {
    pub(crate) starts: [Option<NonZero<usize>>; 2],
    pub(crate) bytes: usize,
}

/// How [`Pool::runs`] hands chunks out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// Most chunks that a worker takes of its own run at a time, at least 1, if they are not more than half of what is left.
    pub(crate) most: usize,
    /// The last chunks of a run, which others leave to the owner: in its stride, it has them sooner.
    pub(crate) leave: usize,
}

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
    /// What each thread expects behind the next region.
    expected: RefCell<Vec<Expected>>,
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
        let expected = RefCell::new(vec![Expected::default(); threads]);
        let mut pool = Self { shared, workers: Vec::new(), generation: Cell::new(0), expected };
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

    /// From now on, what `expected(worker)` says is asked for by each thread that is done with its part of a region.
    pub(crate) fn expect(&self, expected: impl Fn(usize) -> Expected) {
        for (worker, slot) in self.expected.borrow_mut().iter_mut().enumerate() {
            *slot = expected(worker);
        }
    }

    /// Runs `f(worker, chunk)` for each chunk and waits. Chunks begin in their order, each on whichever worker is free:
    /// for few large ones, of which the largest come first. Of the workers (below [`Pool::threads`]) no two run at once
    /// under one index.
    ///
    /// # Panics
    /// If `f` panicked on any thread, with that panic, after every thread has stopped.
    pub(crate) fn chunks(&self, chunks: usize, f: impl Fn(usize, usize) + Sync) {
        let pace = Pace { most: 1, leave: 0 };
        self.share(chunks, (1, pace), |worker, chunks, _| chunks.for_each(|chunk| f(worker, chunk)));
    }

    /// As [`Pool::chunks`], for many small chunks that lie side by side in memory. Every worker has a run of neighbours,
    /// the same one whenever a region has as many chunks, so memory is read in order, by the thread that read it
    /// before, and threads don't meet at a counter. It takes several at a time, to begin anew less often, and when its run
    /// is used up single ones of others'. `f` also learns whether it has just computed the chunk before the first.
    ///
    /// # Panics
    /// As [`Pool::chunks`].
    pub(crate) fn runs(&self, chunks: usize, pace: Pace, f: impl Fn(usize, Range<usize>, bool) + Sync) {
        self.share(chunks, (self.threads(), pace), f);
    }

    /// The chunk that run `run` of `runs` begins with.
    pub(crate) fn first_chunk(run: usize, chunks: usize, runs: usize) -> usize {
        chunks * run / runs
    }

    /// Cuts the chunks into `runs` runs, at most one per thread, and computes them all.
    fn share(
        &self,
        chunks: usize,
        (runs, pace): (usize, Pace),
        f: impl Fn(usize, Range<usize>, bool) + Sync,
    ) {
        if chunks <= 1 || self.workers.is_empty() {
            for first in (0..chunks).step_by(pace.most) {
                f(0, first..(first + pace.most).min(chunks), first > 0);
            }
            return;
        }
        let desks = &self.shared.desks[..runs];
        let start = |run: usize| Self::first_chunk(run, chunks, runs);
        for (run, desk) in desks.iter().enumerate() {
            desk.next_chunk.store(start(run), Relaxed);
        }
        self.each(&|worker| {
            let mut expected = usize::MAX;
            for run in (0..runs).map(|i| (worker + i) % runs) {
                let (next, end) = (&desks[run].next_chunk, start(run + 1));
                let own = runs > 1 && run == worker;
                let leave = if own { 0 } else { pace.leave };
                loop {
                    // Looking first leaves the counter's line with its owner, if there is nothing to take.
                    let left = end.saturating_sub(next.load(Relaxed));
                    if left <= leave {
                        break;
                    }
                    let take = if own { (left / 2).clamp(1, pace.most) } else { 1 };
                    let first = next.fetch_add(take, Relaxed);
                    let taken = first..(first + take).min(end);
                    if !taken.is_empty() {
                        let continues = first == expected;
                        expected = taken.end;
                        f(worker, taken, continues);
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
        let expected = self.expected.borrow();
        for (desk, expected) in shared.desks[1..].iter().zip(&expected[1..]) {
            // SAFETY: `remaining` was 0 before (the last region is over, and regions don't nest: see `Pool`), so the
            // worker doesn't read either until `generation` changes.
            unsafe {
                *desk.job.get() = Some(job);
                *desk.expected.get() = *expected;
            }
        }
        self.begin();
        let own = catch_unwind(AssertUnwindSafe(|| f(0)));
        self.finish(expected[0]);
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
    fn finish(&self, expected: Expected) {
        let shared = &*self.shared;
        let done = || shared.remaining.0.load(Acquire) == 0;
        if ask_until(expected, done) || spin_until(shared.spin, done) {
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
    let (mut seen, mut expected) = (0, Expected::default());
    loop {
        let new = || desk.generation.load(Acquire) != seen;
        if !ask_until(expected, new) && !spin_until(shared.spin, new) {
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
        // SAFETY: the caller wrote them before it changed `generation` and waits for `remaining`.
        let job = unsafe {
            expected = *desk.expected.get();
            (*desk.job.get()).map(|job| &*job)
        };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| job.map(|job| job(worker)))) {
            shared.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(panic);
        }
        if shared.remaining.0.fetch_sub(1, SeqCst) == 1 && shared.caller_parked.load(SeqCst) {
            let caller = shared.caller.lock().unwrap_or_else(PoisonError::into_inner);
            caller.iter().for_each(Thread::unpark);
        }
    }
}

/// Asks the cache for what is expected until `done` or until all of it was asked for; whether it is done.
fn ask_until(expected: Expected, done: impl Fn() -> bool) -> bool {
    /// Bytes between two checks.
    const STEP: usize = 256;
    for offset in (0..expected.bytes).step_by(STEP) {
        if done() {
            return true;
        }
        for start in expected.starts.into_iter().flatten() {
            for line in (offset..offset + STEP).step_by(64) {
                prefetch(std::ptr::without_provenance::<u8>(start.get()).wrapping_add(line));
            }
        }
    }
    done()
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
