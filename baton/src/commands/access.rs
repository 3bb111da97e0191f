//! What a command shows to the process that it asks: the key of an operator, and certificates.

use crate::cli::Access;
use crate::config::{self, ConfigError, Flags, operator_key};
use proto::tls::TlsFiles;
use std::path::{Path, PathBuf};

/// The key cannot be sent.
#[derive(Debug, thiserror::Error)]
#[error("--key, or BATON_KEY: a key has visible characters of ASCII alone, as `baton keys add` prints it")]
pub(crate) struct KeyError;

impl Access {
    /// Returns the value of the header `authorization` with the key of the flag, or else of the environment; `None`:
    /// there is none. Errors: [`KeyError`].
    pub(crate) fn authorization(&self) -> Result<Option<String>, KeyError> {
        let key = self.key.clone().or_else(operator_key);
        match key {
            Some(key) if !key.bytes().all(|byte| byte.is_ascii_graphic()) => Err(KeyError),
            key => Ok(key.map(|key| format!("Bearer {key}"))),
        }
    }

    /// Returns the files of TLS that the flags name, or else the settings. Errors: the settings are wrong.
    pub(crate) fn tls_files(&self) -> Result<TlsFiles, ConfigError> {
        let settings = config::load(&Flags { config: self.config.clone(), ..Flags::default() })?.checked()?.tls;
        let file = |flag: Option<&Path>, setting: &str| -> Option<PathBuf> {
            flag.or(Some(Path::new(setting)).filter(|path| !path.as_os_str().is_empty())).map(Path::to_owned)
        };
        let certificate = file(self.cert.as_deref(), &settings.cert);
        let name = self.tls_name.clone().unwrap_or(settings.server_name);
        Ok(TlsFiles {
            identity: certificate.zip(file(self.key_file.as_deref(), &settings.key)),
            client_authorities: None,
            authorities: file(self.ca.as_deref(), &settings.ca),
            server_name: Some(name).filter(|name| !name.is_empty()),
        })
    }
}
