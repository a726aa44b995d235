//! Priority of a thread, its context switches, CPU clocks of threads and processes.
#![allow(unsafe_code, reason = "none of the calls has a safe wrapper in rustix")]

use std::io;
use std::time::Duration;

use procfs::process::Process;
use rustix::process::Pid;
use rustix::thread::CpuSet;

/// Has the calling thread run on these processors only.
pub(crate) fn stay_on(cpus: &[usize]) -> io::Result<()> {
    let set = cpu_set(cpus).unwrap_or_default();
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

/// Has the calling thread take next to nothing from ordinary threads that are busy, such as those
/// of a generator on the same processor. Children inherit it.
pub(crate) fn step_back() {
    // Where it is not allowed, the thread is as any other.
    let _ = rustix::process::setpriority_process(None, NICEST);
}

/// Has all threads of a process run on these processors only.
pub(crate) fn keep_on(pid: i32, cpus: &[usize]) {
    let Some(set) = cpu_set(cpus) else {
        return;
    };
    let tasks = Process::new(pid).and_then(|process| process.tasks());
    for task in tasks.into_iter().flatten().flatten() {
        // One that has ended meanwhile runs nowhere.
        let _ = rustix::thread::sched_setaffinity(Pid::from_raw(task.tid), &set);
    }
}

/// `None` where nothing is said.
pub(crate) fn cpu_set(cpus: &[usize]) -> Option<CpuSet> {
    if cpus.is_empty() {
        return None;
    }
    let mut set = CpuSet::new();
    for cpu in cpus.iter().filter(|cpu| **cpu < CpuSet::MAX_CPU) {
        set.set(*cpu);
    }
    Some(set)
}

/// Gives the calling thread the idle priority: everything else goes before it.
pub(crate) fn prefer_idle() -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the pointer is to a live sched_param, and 0 names the calling thread.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameters) } {
        0 => {
            // For the kernel's books only, which count nice threads apart from others.
            step_back();
            Ok(())
        }
        _ => Err(io::Error::last_os_error()),
    }
}

/// How often something else ran instead of the calling thread.
pub(crate) fn context_switches() -> i64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is to memory of the size of an rusage, all zeroes of which are valid.
    unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        let usage = usage.assume_init();
        usage.ru_nivcsw + usage.ru_nvcsw
    }
}

/// CPU time that a thread of this process has used; zero once it has ended.
pub(crate) fn thread_cpu(thread: i32) -> Duration {
    cpu_clock((!thread << 3) | CLOCK_OF_SCHEDULER | CLOCK_OF_ONE_THREAD)
}

/// CPU time that all threads of a process have used, those that ended included; zero once the
/// process has ended.
pub(crate) fn process_cpu(pid: i32) -> Duration {
    cpu_clock((!pid << 3) | CLOCK_OF_SCHEDULER)
}

/// The lowest priority that ordinary threads have.
const NICEST: i32 = 19;
/// The kernel's names for CPU clocks: the inverted id, then three bits that say which clock.
const CLOCK_OF_SCHEDULER: i32 = 2;
const CLOCK_OF_ONE_THREAD: i32 = 4;

fn cpu_clock(clock: i32) -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a live timespec; an id that names no thread is an error, not UB.
    match unsafe { libc::clock_gettime(clock, &raw mut time) } {
        0 => Duration::new(time.tv_sec as u64, time.tv_nsec as u32),
        _ => Duration::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_clock_of_a_thread_counts_its_work() {
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        let before = thread_cpu(thread);
        let mut sum = 0_u64;
        while thread_cpu(thread) < before + Duration::from_millis(2) {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(sum > 0);
    }

    #[test]
    fn the_cpu_clock_of_a_process_covers_its_threads() {
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        let of_thread = thread_cpu(thread);
        assert!(process_cpu(std::process::id() as i32) >= of_thread);
    }

    #[test]
    fn a_process_that_went_elsewhere_is_brought_back() {
        let processor = rustix::thread::sched_getaffinity(None).unwrap();
        let first = (0..CpuSet::MAX_CPU).find(|cpu| processor.is_set(*cpu));
        let mut child = std::process::Command::new("sleep")
            .arg("600")
            .spawn()
            .unwrap();
        let pid = child.id() as i32;
        keep_on(pid, &[first.unwrap()]);
        let found = rustix::thread::sched_getaffinity(Pid::from_raw(pid)).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found, cpu_set(&[first.unwrap()]).unwrap());
    }

    #[test]
    fn an_ended_thread_has_no_cpu_time() {
        assert_eq!(thread_cpu(i32::MAX - 7), Duration::ZERO);
    }
}
