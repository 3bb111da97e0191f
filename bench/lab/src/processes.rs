//! Processes of Baton that a benchmark starts.

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// A process that serves; killed when dropped.
pub(crate) struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended; there is nobody to tell.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Process {
    /// Starts it and reads its address, which ends its first line. It ends with its input, so that it does not
    /// outlive this process, whatever that dies of.
    pub(crate) fn start(mut command: Command) -> Result<(Self, String), Box<dyn Error>> {
        let mut process = Self(command.arg("--until-closed").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?);
        let stdout = process.0.stdout.take().ok_or("its output is not piped")?;
        let mut lines = BufReader::new(stdout);
        let mut welcome = String::new();
        lines.read_line(&mut welcome)?;
        let address = welcome.trim_end().rsplit([' ', '/']).next().filter(|address| address.contains(':'));
        let address = address.ok_or_else(|| format!("a process did not start: {welcome:?}"))?.to_owned();
        // A process whose output nobody takes would wait for it.
        std::thread::spawn(move || lines.lines().for_each(drop));
        Ok((process, address))
    }

    /// Returns its process id.
    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }
}

/// Returns the path of the binary, built as this one was.
pub(crate) fn binary() -> Result<PathBuf, Box<dyn Error>> {
    let path = std::env::current_exe()?.with_file_name("baton");
    let built = Command::new("cargo").args(["build", "--release", "--locked", "-p", "baton"]).status()?;
    if built.success() { Ok(path) } else { Err("the binary was not built".into()) }
}
