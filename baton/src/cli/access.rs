//! What the operations listener of a process is shown, so that it answers.

use clap::Args;
use std::path::PathBuf;

/// Arguments of commands that ask a running process.
#[derive(Debug, Args)]
pub(crate) struct Access {
    /// Key with the right admin, for a server on another host; other users of this host can read flags [default:
    /// BATON_KEY of the environment]
    #[arg(long, value_name = "KEY", global = true)]
    pub(crate) key: Option<String>,
    /// Authorities of the server's certificate, a PEM file [default: tls.ca, or else those that the system trusts]
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) ca: Option<PathBuf>,
    /// Certificate to show, a PEM file; with one that `tls.client_ca` accepts, every host may ask [default: tls.cert]
    #[arg(long, value_name = "FILE", requires = "key_file", global = true)]
    pub(crate) cert: Option<PathBuf>,
    /// Private key of the certificate, a PEM file [default: tls.key]
    #[arg(long, value_name = "FILE", requires = "cert", global = true)]
    pub(crate) key_file: Option<PathBuf>,
    /// Name that the server's certificate must be for [default: tls.server_name, or else the host of the URL]
    #[arg(long, value_name = "NAME", global = true)]
    pub(crate) tls_name: Option<String>,
    /// TOML file with the section `tls`
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) config: Option<PathBuf>,
}
