//! A process of this host whose memory is read, as long as the measurement runs.

use bench_transfer::OwnerAddress;
use std::error::Error;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};

/// The other process of a measurement. Dropping it ends it.
pub(crate) struct OwnerProcess {
    process: Child,
    /// Its end ends the process.
    input: Option<ChildStdin>,
}

impl OwnerProcess {
    /// Starts one on this host, with further flags, and returns where it is. It gets the secret over its input, which
    /// no other process reads. Errors: it does not start.
    pub(crate) fn spawn(
        pool_bytes: u64,
        flags: &[&OsStr],
        secret: &str,
    ) -> Result<(Self, OwnerAddress), Box<dyn Error>> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["bench", "transfer", "--own", "--until-closed", "--pool", &pool_bytes.to_string()]);
        command.args(flags);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = process.stdin.take();
        let output = process.stdout.take();
        let mut owner = Self { process, input };
        writeln!(owner.input.as_mut().ok_or("it has no input")?, "{secret}")?;
        let mut line = String::new();
        BufReader::new(output.ok_or("it has no output")?).read_line(&mut line)?;
        let (place, unix) = line.trim_end().split_once(' ').ok_or("the process to be read did not start")?;
        Ok((owner, OwnerAddress { unix: unix.to_owned(), ..place.parse()? }))
    }
}

impl Drop for OwnerProcess {
    fn drop(&mut self) {
        drop(self.input.take());
        // An error says that it has ended before.
        let _ = self.process.wait();
    }
}
