//! A read-only memory map that survives the file's shrinking.
//!
//! Touching a mapped page that the file no longer covers (or that the disk cannot read) raises `SIGBUS`, which kills
//! the process. One handler is installed for the whole process. A fault inside one of our maps puts a page of zeros
//! where the missing page was and marks the map, so that the read goes on and [`Map::check`] reports it afterwards.
//! A fault anywhere else goes to the handler that was there before.

#![expect(unsafe_code, reason = "the memory map and its fault handler, and nothing else in this crate")]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;

use memmap2::Mmap;
#[cfg(target_os = "linux")]
use memmap2::UncheckedAdvice;

/// What became of a mapped file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Health {
    Intact,
    /// The length is now this.
    Resized(u64),
    /// A page could not be read.
    Faulted,
}

/// A mapped file.
#[derive(Debug)]
pub(crate) struct Map {
    map: Mmap,
    file: File,
    guard: guard::Guard,
}

impl Map {
    /// Maps the whole file. The caller has checked that it is a regular one.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        // SAFETY: a map is sound while nobody changes the bytes. The file is opened for reading and this process
        // never writes to a model file that it has open; if another process cuts the file, the guard below turns the
        // fault into zeros, and the parser has copied everything that it bases lengths on out of the map.
        let map = unsafe { Mmap::map(&file)? };
        // A wish: where the file is not in memory yet, a system that can reads it into large pages, which spare the CPU many
        // look-ups of addresses. Weights are read from the map for as long as the model runs.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        let guard = guard::Guard::new(map.as_ptr() as usize, map.len());
        Ok(Self { map, file, guard })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.map
    }

    /// Gives back the memory of the pages that lie in `range`, which must be inside the map. The system may keep them as
    /// its own copy of the file as long as it has room.
    pub(crate) fn release(&self, range: Range<usize>) {
        #[cfg(target_os = "linux")]
        {
            let page = guard::page();
            let (start, end) = (range.start.next_multiple_of(page), range.end / page * page);
            if start < end {
                // SAFETY: the map is of a file and nobody writes through it, so that pages come back as they were; those
                // that the guard has put there are zeros, and come back as zeros. A refusal frees nothing.
                let _ =
                    unsafe { self.map.unchecked_advise_range(UncheckedAdvice::DontNeed, start, end - start) };
            }
        }
        #[cfg(not(target_os = "linux"))]
        let _ = range;
    }

    /// Whether all that was read through the map so far really was in the file.
    pub(crate) fn check(&self) -> io::Result<Health> {
        let len = self.file.metadata()?.len();
        Ok(if len != self.map.len() as u64 {
            Health::Resized(len)
        } else if self.guard.faulted() {
            Health::Faulted
        } else {
            Health::Intact
        })
    }
}

#[cfg(unix)]
mod guard {
    use std::ffi::c_int;
    use std::mem;
    use std::ptr;
    use std::sync::Once;
    use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

    /// One map that the handler knows. Watches are leaked and never reused: the handler may walk the list at any
    /// moment, and 40 bytes per map opened are cheaper than a lock that a signal handler could not take.
    #[derive(Debug)]
    struct Watch {
        start: usize,
        end: usize,
        live: AtomicBool,
        faulted: AtomicBool,
        next: *const Watch,
    }

    static WATCHES: AtomicPtr<Watch> = AtomicPtr::new(ptr::null_mut());
    static PREVIOUS: AtomicPtr<libc::sigaction> = AtomicPtr::new(ptr::null_mut());
    static PAGE: AtomicUsize = AtomicUsize::new(0);
    static INSTALL: Once = Once::new();

    /// Watches a range until it is dropped.
    #[derive(Debug)]
    pub(super) struct Guard(&'static Watch);

    /// Bytes of a page, once there has been a guard.
    pub(super) fn page() -> usize {
        PAGE.load(Ordering::Acquire)
    }

    // SAFETY: `next` is written before the watch is published and never again; the rest is plain data and atomics.
    unsafe impl Sync for Watch {}
    // SAFETY: as above.
    unsafe impl Send for Watch {}

    impl Guard {
        pub(super) fn new(start: usize, len: usize) -> Self {
            INSTALL.call_once(install);
            let watch = Box::leak(Box::new(Watch {
                start,
                end: start + len,
                live: AtomicBool::new(true),
                faulted: AtomicBool::new(false),
                next: ptr::null(),
            }));
            let this: *mut Watch = watch;
            let mut head = WATCHES.load(Ordering::Acquire);
            loop {
                // SAFETY: `this` is ours alone until the exchange below succeeds.
                unsafe { (*this).next = head };
                match WATCHES.compare_exchange_weak(head, this, Ordering::AcqRel, Ordering::Acquire) {
                    Ok(_) => break,
                    Err(now) => head = now,
                }
            }
            // SAFETY: leaked, so valid for ever, and only shared references exist from here on.
            Self(unsafe { &*this })
        }

        pub(super) fn faulted(&self) -> bool {
            self.0.faulted.load(Ordering::Acquire)
        }
    }

    impl Drop for Guard {
        fn drop(&mut self) {
            self.0.live.store(false, Ordering::Release);
        }
    }

    fn install() {
        // SAFETY: `sysconf` and `sigaction` are called with valid pointers; the previous action and the page size
        // are published before the handler that reads them can run, and the handler has the three-argument form
        // that SA_SIGINFO asks for. SA_ONSTACK keeps the chained stack-overflow handler of Rust's runtime working.
        unsafe {
            let page = libc::sysconf(libc::_SC_PAGESIZE);
            PAGE.store(usize::try_from(page).unwrap_or(4096), Ordering::Release);
            let previous = Box::leak(Box::new(mem::zeroed::<libc::sigaction>()));
            libc::sigaction(libc::SIGBUS, ptr::null(), previous);
            PREVIOUS.store(previous, Ordering::Release);
            let mut action: libc::sigaction = mem::zeroed();
            action.sa_sigaction = handle as extern "C" fn(_, _, _) as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigemptyset(&raw mut action.sa_mask);
            libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut());
        }
    }

    /// Finds the watch that covers `address`.
    fn watching(address: usize) -> Option<&'static Watch> {
        let mut next: *const Watch = WATCHES.load(Ordering::Acquire);
        // SAFETY: the list holds leaked watches only, and each was complete before it was published.
        while let Some(watch) = unsafe { next.as_ref() } {
            if (watch.start..watch.end).contains(&address) && watch.live.load(Ordering::Acquire) {
                return Some(watch);
            }
            next = watch.next;
        }
        None
    }

    /// Calls nothing but `mmap` (a bare system call), `sigaction` and the previous handler.
    extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
        // SAFETY: the kernel passes a valid `siginfo_t`, and for SIGBUS its address field is set.
        let address = unsafe { (*info).si_addr() } as usize;
        if let Some(watch) = watching(address) {
            let page = page();
            // Before the zeros appear: another thread may read them and ask at once.
            watch.faulted.store(true, Ordering::Release);
            // SAFETY: the page belongs to a live map of ours, which keeps its address range reserved, so MAP_FIXED
            // replaces nothing else. `errno` is put back, for the interrupted code may be about to read it.
            let mapped = unsafe {
                let errno = errno_location();
                let saved = *errno;
                let at = (address & !(page - 1)) as *mut libc::c_void;
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
                let mapped = libc::mmap(at, page, libc::PROT_READ, flags, -1, 0);
                *errno = saved;
                mapped
            };
            if mapped != libc::MAP_FAILED {
                return;
            }
        }
        chain(signal, info, context);
    }

    /// Passes the signal to the handler that was installed before ours.
    fn chain(signal: c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
        // SAFETY: PREVIOUS was published before the handler was installed and holds what `sigaction` reported, so
        // its function has the form that its flags say. Where there was none, the default action is put back and
        // the faulting instruction, run again on return, ends the process as it would have without us.
        unsafe {
            let previous = &*PREVIOUS.load(Ordering::Acquire);
            match previous.sa_sigaction {
                libc::SIG_DFL | libc::SIG_IGN => {
                    let mut default: libc::sigaction = mem::zeroed();
                    default.sa_sigaction = libc::SIG_DFL;
                    libc::sigaction(signal, &raw const default, ptr::null_mut());
                }
                f if previous.sa_flags & libc::SA_SIGINFO != 0 => {
                    let f = mem::transmute::<
                        usize,
                        extern "C" fn(c_int, *mut libc::siginfo_t, *mut libc::c_void),
                    >(f);
                    f(signal, info, context);
                }
                f => mem::transmute::<usize, extern "C" fn(c_int)>(f)(signal),
            }
        }
    }

    #[cfg(any(target_os = "android", target_os = "netbsd", target_os = "openbsd"))]
    use libc::__errno as errno_location;
    #[cfg(any(target_os = "linux", target_os = "emscripten"))]
    use libc::__errno_location as errno_location;
    #[cfg(any(target_os = "macos", target_os = "ios", target_os = "freebsd"))]
    use libc::__error as errno_location;
}

/// Where a mapped file cannot be cut (Windows refuses it), there is nothing to guard against.
#[cfg(not(unix))]
mod guard {
    #[derive(Debug)]
    pub(super) struct Guard;

    impl Guard {
        pub(super) fn new(_start: usize, _len: usize) -> Self {
            Self
        }

        pub(super) fn faulted(&self) -> bool {
            false
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use super::*;

    /// Dies. Run by the test below, in a process of its own.
    #[test]
    #[ignore = "ends the process"]
    fn a_fault_of_somebody_else() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(4096).unwrap();
        let ours = Map::open(file.path()).unwrap();
        // SAFETY: a map of our own file, whose loss of bytes is the point.
        let foreign = unsafe { Mmap::map(&file).unwrap() };
        file.as_file().set_len(0).unwrap();
        assert_eq!(ours.bytes()[0], 0);
        assert_eq!(std::hint::black_box(&foreign)[0], 0, "not reached");
    }

    #[test]
    fn a_fault_outside_our_maps_still_ends_the_process() {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "mmap::tests::a_fault_of_somebody_else"])
            .output()
            .unwrap();
        assert_eq!(output.status.signal(), Some(libc::SIGBUS), "{output:?}");
    }

    /// KiB of a map's memory that this process has.
    #[cfg(target_os = "linux")]
    fn resident(map: &Map) -> Option<u64> {
        let smaps = std::fs::read_to_string("/proc/self/smaps").ok()?;
        let start = format!("{:08x}-", map.bytes().as_ptr().addr());
        let mut lines = smaps.lines().skip_while(|line| !line.starts_with(&start));
        let rss = lines.find_map(|line| line.strip_prefix("Rss:"))?;
        rss.trim().strip_suffix(" kB")?.parse().ok()
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn released_bytes_take_no_memory_and_come_back() {
        use std::io::Write;

        const LEN: usize = 4 << 20;
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&(0..=255).cycle().take(LEN).collect::<Vec<u8>>()).unwrap();
        let map = Map::open(file.path()).unwrap();
        let sum = || map.bytes().iter().map(|byte| u64::from(*byte)).sum::<u64>();
        let whole = sum();
        assert!(resident(&map).unwrap() >= 4096);
        // Pages that are only partly in the range stay.
        map.release(1..LEN - 1);
        assert!(resident(&map).unwrap() < 4096);
        assert_eq!(sum(), whole);
        map.release(0..LEN);
        assert_eq!(resident(&map), Some(0));
        for nothing in [0..0, 1..2, LEN - 1..LEN, LEN..LEN] {
            map.release(nothing);
        }
        assert_eq!(sum(), whole);
    }

    #[test]
    fn an_empty_file_is_an_empty_map() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let map = Map::open(file.path()).unwrap();
        assert!(map.bytes().is_empty());
        assert_eq!(map.check().unwrap(), Health::Intact);
    }
}
