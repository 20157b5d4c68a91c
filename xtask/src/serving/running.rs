//! A server in a process of its own, on a port of this machine that the system chooses.

use super::http::{Answer, get};
use anyhow::{Context as _, Result, ensure};
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

pub struct Running {
    pub address: SocketAddr,
    child: Child,
}

/// Loading a model and warming up, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

impl Running {
    /// Starts `flatclip serve` with these arguments and waits until it is ready. Its log lies in `folder`.
    pub fn start(binary: &Path, folder: &Path, arguments: &[&str]) -> Result<Self> {
        let mut command = Command::new(binary);
        command.args(["serve", "--bind", "127.0.0.1:0", "--offline"]).args(arguments);
        Self::spawn(command, folder)
    }

    /// The same for a command that is ready to run.
    pub fn spawn(mut command: Command, folder: &Path) -> Result<Self> {
        let log = folder.join(format!("serve-{}.log", std::process::id()));
        let mut child = command
            .env("FLATCLIP_CACHE", folder.join("cache"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(&log)?)
            .spawn()
            .context("cannot start the server")?;
        let stdout = BufReader::new(child.stdout.take().context("stdout is piped")?);
        // The address is in the first line, or in a few lines of JSON.
        let address = stdout.lines().map_while(Result::ok).find_map(|line| {
            let rest = line.split_once("http://")?.1;
            rest.split('/').next()?.parse().ok()
        });
        let Some(address) = address else {
            let _ = child.kill();
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            anyhow::bail!("the server did not say its address: {said}");
        };
        let server = Self { address, child };
        let start = Instant::now();
        while server.get("/readyz")?.status != 200 {
            ensure!(start.elapsed() < PATIENCE, "the server was not ready within {} s", PATIENCE.as_secs());
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    pub fn get(&self, path: &str) -> Result<Answer> {
        get(self.address, path)
    }

    /// Resident memory in bytes.
    pub fn memory(&self) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let kb = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
        Ok(kb.context("no VmRSS")?.trim().parse::<u64>()? * 1024)
    }

    /// Open files and sockets.
    pub fn files(&self) -> Result<usize> {
        Ok(std::fs::read_dir(format!("/proc/{}/fd", self.child.id()))?.count())
    }

    fn signal(&self, name: &str) -> Result<()> {
        let sent = Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string()).status()?;
        ensure!(sent.success(), "kill -{name} failed");
        Ok(())
    }

    /// Waits for its end.
    fn wait(&mut self, patience: Duration) -> Result<ExitStatus> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            ensure!(start.elapsed() < patience, "the server did not end within {} s", patience.as_secs());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.signal("TERM");
        if self.wait(Duration::from_secs(30)).is_err() {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}
