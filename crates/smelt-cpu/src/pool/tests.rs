use super::*;
use std::sync::atomic::AtomicU32;

#[test]
fn every_chunk_runs_once() {
    for threads in [1, 2, 3, 7] {
        let pool = Pool::new(threads, true).unwrap();
        for chunks in [0, 1, 2, 5, 64, 1000] {
            let counts: Vec<AtomicU32> = (0..chunks).map(|_| AtomicU32::new(0)).collect();
            let count = |worker: usize, chunk: usize| {
                assert!(worker < threads);
                counts[chunk].fetch_add(1, Relaxed);
            };
            pool.chunks(chunks, count);
            for pace in [Pace { most: 1, leave: 0 }, Pace { most: 100, leave: 7 }] {
                pool.runs(chunks, pace, |worker, chunks, _| chunks.for_each(|chunk| count(worker, chunk)));
            }
            assert!(counts.iter().all(|c| c.load(Relaxed) == 3), "{threads} threads, {chunks} chunks");
        }
    }
}

#[test]
fn a_worker_begins_with_its_own_run_and_helps_others() {
    let pool = Pool::new(2, true).unwrap();
    let order = [const { Mutex::new(Vec::new()) }; 2];
    let done = AtomicUsize::new(0);
    let wait_until = |n| {
        while done.load(SeqCst) < n {
            std::thread::yield_now();
        }
    };
    pool.runs(100, Pace { most: 1, leave: 3 }, |worker, chunks, continues| {
        order[worker].lock().unwrap().push((chunks.start, continues));
        match (worker, chunks.start) {
            // The caller waits for the other thread, which is then held up until the caller has nothing left to take.
            (0, 0) => wait_until(1),
            (1, 50) => {
                done.fetch_add(1, SeqCst);
                wait_until(97);
            }
            _ => {}
        }
        done.fetch_add(1, SeqCst);
    });
    let [caller, other] = order.map(|order| order.into_inner().unwrap());
    assert_eq!(other, [(50, false), (97, false), (98, true), (99, true)]);
    let expected: Vec<_> = (0..50).chain(51..97).map(|chunk| (chunk, chunk != 0 && chunk != 51)).collect();
    assert_eq!(caller, expected);
}

#[test]
fn a_worker_takes_at_most_half_of_what_is_left_of_its_run() {
    let pool = Pool::new(2, true).unwrap();
    let taken = [const { Mutex::new(Vec::new()) }; 2];
    pool.runs(80, Pace { most: 12, leave: 40 }, |worker, chunks, continues| {
        assert_eq!(continues, chunks.start % 40 != 0);
        taken[worker].lock().unwrap().push(chunks);
    });
    let [caller, other] = taken.map(|taken| taken.into_inner().unwrap());
    assert_eq!(caller, [0..12, 12..24, 24..32, 32..36, 36..38, 38..39, 39..40]);
    assert_eq!(other, [40..52, 52..64, 64..72, 72..76, 76..78, 78..79, 79..80]);
}

#[test]
fn threads_may_expect_any_address_and_begin_the_next_region_meanwhile() {
    let pool = Pool::new(3, true).unwrap();
    let count = AtomicUsize::new(0);
    for start in [None, NonZero::new(1), NonZero::new(usize::MAX)] {
        pool.expect(|worker| Expected { starts: [start, NonZero::new(worker << 20)], bytes: 1 << 20 });
        for _ in 0..50 {
            pool.each(&|_| _ = count.fetch_add(1, Relaxed));
        }
    }
    assert_eq!(count.into_inner(), 3 * 3 * 50);
}

#[test]
fn a_panic_reaches_the_caller_and_the_pool_lives_on() {
    let pool = Pool::new(3, true).unwrap();
    for bad in [0, 7, 99] {
        let run = || pool.chunks(100, |_, chunk| assert!(chunk != bad, "chunk {chunk} is bad"));
        let panic = catch_unwind(AssertUnwindSafe(run)).unwrap_err();
        let message = panic.downcast_ref::<String>().unwrap();
        assert_eq!(message, &format!("chunk {bad} is bad"));
    }
    let sum = AtomicUsize::new(0);
    pool.chunks(100, |_, chunk| {
        sum.fetch_add(chunk, Relaxed);
    });
    assert_eq!(sum.into_inner(), 4950);
}

#[test]
fn regions_after_parking_still_run() {
    let pool = Pool::new(4, true).unwrap();
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(1));
        let ran = AtomicU32::new(0);
        pool.chunks(8, |_, _| {
            std::thread::sleep(Duration::from_micros(200));
            ran.fetch_add(1, Relaxed);
        });
        assert_eq!(ran.into_inner(), 8);
    }
}

/// CPU time of this thread's pool workers can't be told apart from other tests', so this reads each worker's own clock.
#[cfg(target_os = "linux")]
#[test]
fn idle_workers_use_no_cpu_time() {
    let pool = Pool::new(3, false).unwrap();
    let clocks = Mutex::new(Vec::new());
    // Every worker records its clock once: chunks wait until three threads are in the region.
    let inside = AtomicUsize::new(0);
    pool.chunks(3, |_, _| {
        inside.fetch_add(1, SeqCst);
        while inside.load(SeqCst) < 3 {
            std::thread::yield_now();
        }
        let mut clock = 0;
        // SAFETY: `pthread_self` is a live thread and `clock` is writable.
        let ok = unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut clock) };
        assert_eq!(ok, 0);
        clocks.lock().unwrap().push((std::thread::current().id(), clock));
    });
    let here = std::thread::current().id();
    let workers: Vec<_> = clocks.into_inner().unwrap().into_iter().filter(|(id, _)| *id != here).collect();
    assert_eq!(workers.len(), 2);
    std::thread::sleep(Duration::from_millis(200));
    let cpu_time = |clock| {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the clock is of a worker that the pool keeps alive, and `time` is writable.
        assert_eq!(unsafe { libc::clock_gettime(clock, &raw mut time) }, 0);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    };
    let before: Vec<_> = workers.iter().map(|(_, clock)| cpu_time(*clock)).collect();
    std::thread::sleep(Duration::from_secs(1));
    for ((_, clock), before) in workers.iter().zip(before) {
        let used = cpu_time(*clock) - before;
        assert!(used < Duration::from_millis(5), "an idle worker used {used:?} of a second");
    }
    drop(pool);
}
