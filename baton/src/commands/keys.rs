//! `baton keys`: the keys of the API, in the file that routers read.

use crate::cli::{AddKey, KeysArgs};
use crate::config::{Flags, load};
use crate::error::CommandError;
use crate::output::{print, table};
use keys::{KeyEntry, KeyFile, KeyFileError, new_key};
use std::path::{Path, PathBuf};

/// Makes a key, adds it to the file, and prints it: the only time that it is seen.
pub(crate) fn add(args: &AddKey) -> Result<(), CommandError> {
    let path = file(&args.keys)?;
    if args.tenant.trim().is_empty() {
        return Err(CommandError::Usage("--tenant is empty: name who will use the key".into()));
    }
    let (key, hash) = new_key().map_err(failed)?;
    let entry = KeyEntry {
        hash,
        tenant: args.tenant.clone(),
        models: args.models.clone(),
        requests_per_minute: args.requests_per_minute,
        tokens_per_minute: args.tokens_per_minute,
        concurrent: args.concurrent,
        admin: args.admin,
    };
    KeyFile::change(&path, |file| file.keys.push(entry)).map_err(failed)?;
    eprintln!("added the key {} to {}; it is printed this once:", hash.id(), path.display());
    Ok(print(&format!("{key}\n"))?)
}

/// Lists the keys by their names.
pub(crate) fn list(args: &KeysArgs) -> Result<(), CommandError> {
    let path = file(args)?;
    let keys = KeyFile::read(&path).map_err(failed)?.keys;
    if keys.is_empty() {
        return Ok(print(&format!("no keys in {}: no client is served\n", path.display()))?);
    }
    let header = ["key", "tenant", "models", "requests/min", "tokens/min", "at once", "admin"].map(str::to_owned);
    let limit = |limit: u32| if limit == 0 { "any".to_owned() } else { limit.to_string() };
    let row = |key: &KeyEntry| {
        let models = if key.models.is_empty() { "all".to_owned() } else { key.models.join(", ") };
        let limits = [key.requests_per_minute, key.tokens_per_minute, key.concurrent].map(limit);
        let [requests, tokens, concurrent] = limits;
        let admin = if key.admin { "yes" } else { "no" }.to_owned();
        [key.hash.id(), key.tenant.clone(), models, requests, tokens, concurrent, admin]
    };
    let rows: Vec<_> = std::iter::once(header).chain(keys.iter().map(row)).collect();
    Ok(print(&table(&rows))?)
}

/// Removes a key from the file.
pub(crate) fn revoke(id: &str, args: &KeysArgs) -> Result<(), CommandError> {
    let path = file(args)?;
    // A name is given as it is listed, or longer: the whole hash.
    let is_it = |key: &KeyEntry| id.len() >= key.hash.id().len() && key.hash.to_string().starts_with(id);
    // A mistyped name leaves no file behind.
    KeyFile::read(&path).map_err(failed)?;
    let revoked = KeyFile::change(&path, |file| {
        let at = file.keys.iter().position(is_it)?;
        Some(file.keys.remove(at))
    });
    match revoked.map_err(failed)? {
        Some(key) => Ok(print(&format!("revoked the key {} of {}\n", key.hash.id(), key.tenant))?),
        None => {
            let missing = format!("{} has no key {id}; `baton keys list` names those that it has", path.display());
            Err(CommandError::Usage(missing.into()))
        }
    }
}

/// Returns the file: as the flag says, else as the router's configuration does.
fn file(args: &KeysArgs) -> Result<PathBuf, CommandError> {
    if let Some(file) = &args.file {
        return Ok(file.clone());
    }
    let flags = Flags { config: args.config.clone(), ..Flags::default() };
    let path = load(&flags)?.checked()?.router.keys_file;
    if path.is_empty() {
        let missing = "router.keys_file is not set: name the file by --file, or the configuration by --config";
        return Err(CommandError::Usage(missing.into()));
    }
    Ok(Path::new(&path).to_owned())
}

fn failed(error: KeyFileError) -> CommandError {
    CommandError::Failed(error.into())
}
