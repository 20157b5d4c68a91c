//! Watching the file calls of a program as a debugger does: each is told before it happens, and the program can be ended there.

use super::program::Program;
use anyhow::{Context as _, Result};
use nix::libc;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// A call that changes files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum What {
    Write,
    /// Of a file's content, or of a folder's names.
    Sync,
    /// From its first path.
    Rename,
    Remove,
    Cut,
    /// Opening, which may make a file.
    Open,
}

/// A call on its way.
pub(super) struct Call {
    pub(super) what: What,
    pub(super) path: PathBuf,
}

/// What is to become of the program.
#[derive(PartialEq, Eq)]
pub(super) enum Then {
    GoOn,
    /// As `kill -9` would, before the call.
    End,
}

/// Runs the program to its end, or to where `at` ends it; the exit code, if it came to one.
pub(super) fn watch(program: &Program, arguments: &[&str], mut at: impl FnMut(&Call) -> Then) -> Result<Option<i32>> {
    // It waits for a line before it becomes the program, so that nothing is missed.
    let mut command = program.limited("read -r go", arguments);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let first = Pid::from_raw(i32::try_from(child.id())?);
    let options = Options::PTRACE_O_TRACESYSGOOD
        | Options::PTRACE_O_TRACECLONE
        | Options::PTRACE_O_TRACEEXEC
        | Options::PTRACE_O_EXITKILL;
    if let Err(error) = ptrace::seize(first, options).and_then(|()| ptrace::interrupt(first)) {
        child.kill()?;
        child.wait()?;
        return Err(error).context("this machine lets no process be watched");
    }
    child.stdin.take().context("stdin is piped")?.write_all(b"go\n")?;
    // Threads that are in the middle of a call: their next stop is its end.
    let mut inside: BTreeSet<Pid> = BTreeSet::new();
    loop {
        let status = waitpid(Pid::from_raw(-1), Some(WaitPidFlag::__WALL))?;
        let (thread, signal) = match status {
            WaitStatus::Exited(pid, code) if pid == first => return Ok(Some(code)),
            WaitStatus::Signaled(pid, ..) if pid == first => return Ok(None),
            WaitStatus::PtraceSyscall(pid) => {
                if inside.remove(&pid) {
                    (pid, None)
                } else {
                    inside.insert(pid);
                    if let Some(call) = call_of(pid)
                        && at(&call) == Then::End
                    {
                        kill(first, Signal::SIGKILL)?;
                        continue;
                    }
                    (pid, None)
                }
            }
            WaitStatus::Stopped(pid, signal) => (pid, Some(signal)),
            WaitStatus::PtraceEvent(pid, ..) => (pid, None),
            _ => continue,
        };
        // A thread can be gone by now: its end is told by another status.
        let _ = ptrace::syscall(thread, signal);
    }
}

/// The call that a thread is about to make, if it is about files.
fn call_of(thread: Pid) -> Option<Call> {
    let text = std::fs::read_to_string(format!("/proc/{thread}/syscall")).ok()?;
    let mut words = text.split_whitespace();
    let number: i64 = words.next()?.parse().ok()?;
    let values: Vec<u64> = words.filter_map(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok()).collect();
    let open_file = || std::fs::read_link(format!("/proc/{thread}/fd/{}", values.first()?)).ok();
    let named = |place: usize| path_at(thread, *values.get(place)?);
    let (what, path) = match number {
        libc::SYS_write | libc::SYS_pwrite64 | libc::SYS_writev => (What::Write, open_file()?),
        libc::SYS_fsync | libc::SYS_fdatasync => (What::Sync, open_file()?),
        libc::SYS_ftruncate => (What::Cut, open_file()?),
        libc::SYS_rename => (What::Rename, named(0)?),
        libc::SYS_renameat | libc::SYS_renameat2 | libc::SYS_linkat => (What::Rename, named(1)?),
        libc::SYS_unlink => (What::Remove, named(0)?),
        libc::SYS_unlinkat => (What::Remove, named(1)?),
        libc::SYS_openat => (What::Open, named(1)?),
        _ => return None,
    };
    Some(Call { what, path })
}

/// The path that stands at an address of the program, seen from its working folder.
fn path_at(thread: Pid, address: u64) -> Option<PathBuf> {
    let memory = std::fs::File::open(format!("/proc/{thread}/mem")).ok()?;
    let mut bytes = vec![0; 4096];
    let count = memory.read_at(&mut bytes, address).ok()?;
    let end = bytes[..count].iter().position(|&byte| byte == 0)?;
    let folder = std::fs::read_link(format!("/proc/{thread}/cwd")).ok()?;
    Some(folder.join(Path::new(std::str::from_utf8(&bytes[..end]).ok()?)))
}
