//! The files that clients have brought.
use crate::failure::{excerpt, Failure, Result};
use crate::manager::new_id;
use axum::http::StatusCode;
use serde::Serialize;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// What clients may have together; 0: no limit.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of memory of all sessions and predictors.
    pub budget: u64,
    /// Bytes of all uploads.
    pub quota: u64,
    /// Bytes of one upload.
    pub largest: u64,
}

pub struct Uploads {
    folder: PathBuf,
    limits: Limits,
    /// Bytes of all, those that are on their way among them.
    used: Mutex<u64>,
}

#[derive(Debug, Serialize)]
pub struct Upload {
    pub id: String,
    pub bytes: u64,
    /// That use it.
    pub jobs: Vec<String>,
}

const PART: &str = ".part";

/// What a client may name a file: it becomes part of a path.
fn is_plain(name: &str) -> bool {
    let fine = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let begins = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    name.len() <= 101 && begins && name.chars().all(fine) && !name.ends_with(PART)
}

impl Uploads {
    /// Takes up a folder. What did not arrive in full is removed.
    pub fn open(folder: &Path, limits: Limits) -> Result<Arc<Uploads>> {
        let mut used = 0;
        for one in fs::read_dir(folder)? {
            let one = one?;
            if one.file_name().to_string_lossy().ends_with(PART) {
                fs::remove_file(one.path())?;
            } else {
                used += one.metadata()?.len();
            }
        }
        Ok(Arc::new(Uploads { folder: folder.into(), limits, used: Mutex::new(used) }))
    }
    fn take(&self, bytes: u64) -> Result<()> {
        let mut used = self.used.lock().unwrap();
        let quota = self.limits.quota;
        if quota > 0 && *used + bytes > quota {
            let text =
                format!("there is no room for the upload: all uploads together may have {quota} bytes; delete some");
            return Err(Failure::new(StatusCode::INSUFFICIENT_STORAGE, text));
        }
        *used += bytes;
        Ok(())
    }
    fn give_back(&self, bytes: u64) {
        *self.used.lock().unwrap() -= bytes;
    }
    /// Begins a file under an id, which ends in its name, so that a reader is found by the ending.
    pub fn begin(self: &Arc<Self>, name: &str) -> Result<Arriving> {
        if !is_plain(name) {
            return Err(Failure::wrong(format!("{:?} is no plain file name", excerpt(name))));
        }
        let id = format!("{}-{name}", new_id());
        let part = self.folder.join(format!("{id}{PART}"));
        Ok(Arriving { file: File::create(&part)?, part, id, bytes: 0, kept: false, uploads: Arc::clone(self) })
    }
    /// The path of an upload.
    pub fn find(&self, id: &str) -> Result<PathBuf> {
        let path = self.folder.join(id);
        match is_plain(id) && path.exists() {
            true => Ok(path),
            false => Err(Failure::new(StatusCode::NOT_FOUND, format!("there is no such upload: {}", excerpt(id)))),
        }
    }
    /// All, in the order of their ids; `users` says which jobs use one.
    pub fn list(&self, users: impl Fn(&str) -> Vec<String>) -> Result<Vec<Upload>> {
        let mut all = Vec::new();
        for one in fs::read_dir(&self.folder)? {
            let one = one?;
            let id = one.file_name().to_string_lossy().into_owned();
            if !id.ends_with(PART) {
                all.push(Upload { bytes: one.metadata()?.len(), jobs: users(&id), id });
            }
        }
        all.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(all)
    }
    /// Gives back the room of an upload that no job uses.
    pub fn remove(&self, id: &str, users: impl Fn(&str) -> Vec<String>) -> Result<Upload> {
        let (path, jobs) = (self.find(id)?, users(id));
        if let Some(job) = jobs.first() {
            let text = format!("the upload is in use: it belongs to job {job}");
            return Err(Failure::new(StatusCode::CONFLICT, text));
        }
        let bytes = fs::metadata(&path)?.len();
        fs::remove_file(&path).map_err(|_| Failure::unknown())?; // another client was first
        self.give_back(bytes);
        Ok(Upload { id: id.into(), bytes, jobs })
    }
}

/// A file on its way. One that is dropped before it was kept leaves nothing.
pub struct Arriving {
    uploads: Arc<Uploads>,
    id: String,
    part: PathBuf,
    file: File,
    bytes: u64,
    kept: bool,
}

impl Arriving {
    pub fn add(&mut self, piece: &[u8]) -> Result<()> {
        let (more, largest) = (piece.len() as u64, self.uploads.limits.largest);
        if largest > 0 && self.bytes + more > largest {
            let text = format!("the upload is too large: it may have {largest} bytes");
            return Err(Failure::new(StatusCode::PAYLOAD_TOO_LARGE, text));
        }
        self.uploads.take(more)?;
        self.bytes += more;
        Ok(self.file.write_all(piece)?)
    }
    pub fn keep(mut self) -> Result<Upload> {
        self.file.sync_all()?;
        fs::rename(&self.part, self.uploads.folder.join(&self.id))?;
        self.kept = true;
        Ok(Upload { id: self.id.clone(), bytes: self.bytes, jobs: Vec::new() })
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        if !self.kept {
            let _ = fs::remove_file(&self.part);
            self.uploads.give_back(self.bytes);
        }
    }
}
