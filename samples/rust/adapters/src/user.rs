//! A user: a folder with data, what is wanted, and the adapters as they were last saved.
use crate::failure::{Failure, Result};
use crate::seat::Seat;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::watch;

/// What is wanted of a user's training. It is kept in the user's folder, so that a service that starts again goes on.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Wish {
    /// The data: a file in the folder's `data`.
    pub file: String,
    /// Options of the reader (docs/readers.md).
    pub dataset: serde_json::Map<String, serde_json::Value>,
    /// To make in all.
    pub steps: i64,
    /// Whether they are to be made now.
    pub running: bool,
    /// For people: what the adapters themselves know.
    pub saved_step: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Nothing was asked for yet.
    Idle,
    /// For a seat.
    Waiting,
    Training,
    Paused,
    Done,
    Failed,
}

/// What watchers see. Its JSON is the service's promise.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    pub user: String,
    pub phase: Phase,
    pub step: i64,
    pub steps: i64,
    pub loss: f64,
    pub saved_step: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

pub struct User {
    pub name: String,
    folder: PathBuf,
    pub wish: Mutex<Wish>,
    pub status: watch::Sender<Status>,
    /// Where the user's adapters are trained now.
    pub seat: Mutex<Option<Arc<Seat>>>,
    /// Another number for each state that was ever saved.
    state: AtomicU64,
}

static STATES: AtomicU64 = AtomicU64::new(1);

/// What a client may name a user or a file: it becomes part of a path.
pub fn plain(name: &str) -> Result<&str> {
    let fine = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if name.len() <= 100 && name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(fine) {
        Ok(name)
    } else {
        Err(Failure::Wrong(format!("{name:?} is no plain name: letters, digits, '.', '_' and '-'")))
    }
}

/// Writes a file whole or not at all.
fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    fs::create_dir_all(path.parent().expect("a file is in a folder"))?;
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    let mut file = File::create(&part)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    Ok(fs::rename(&part, path)?)
}

impl User {
    /// Takes up the folder of a user, which may be empty.
    pub fn open(folder: PathBuf) -> Result<User> {
        let name = folder.file_name().and_then(|one| one.to_str()).unwrap_or_default();
        let name = plain(name)?.to_string();
        let wish = match fs::read(folder.join("wish.json")) {
            Ok(text) => serde_json::from_slice(&text).map_err(|e| Failure::Wrong(format!("{name}: {e}")))?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Wish::default(),
            Err(error) => return Err(error.into()),
        };
        let phase = match &wish {
            Wish { running: true, .. } => Phase::Waiting,
            Wish { steps: 0, .. } => Phase::Idle,
            Wish { steps, saved_step, .. } if saved_step >= steps => Phase::Done,
            _ => Phase::Paused,
        };
        let (step, steps) = (wish.saved_step, wish.steps);
        let status = Status { user: name.clone(), phase, step, steps, loss: 0.0, saved_step: step, error: None };
        let state = AtomicU64::new(STATES.fetch_add(1, Ordering::Relaxed));
        let (wish, seat, status) = (Mutex::new(wish), Mutex::new(None), watch::Sender::new(status));
        Ok(User { name, folder, wish, status, seat, state })
    }
    pub fn path(&self, file: &str) -> PathBuf {
        self.folder.join(file)
    }
    pub fn data(&self, file: &str) -> PathBuf {
        self.folder.join("data").join(file)
    }
    /// Keeps a file of data.
    pub fn keep(&self, file: &str, bytes: &[u8]) -> Result<()> {
        write(&self.data(file), bytes)
    }
    /// Keeps what is wanted.
    pub fn note(&self, wish: &Wish) -> Result<()> {
        write(&self.path("wish.json"), &serde_json::to_vec_pretty(wish).expect("a wish is JSON"))
    }
    /// Keeps adapters, with their optimizer's state and their place in the data.
    pub fn save(&self, step: i64, state: &[u8]) -> Result<()> {
        write(&self.path("adapters"), state)?;
        self.state.store(STATES.fetch_add(1, Ordering::Relaxed), Ordering::Release);
        let mut wish = self.wish.lock().unwrap();
        wish.saved_step = step;
        self.note(&wish)?;
        self.status.send_modify(|s| s.saved_step = step);
        Ok(())
    }
    /// The state that was saved last, if any, and its number.
    pub fn saved(&self) -> Result<(u64, Option<Vec<u8>>)> {
        let number = self.state.load(Ordering::Acquire);
        match fs::read(self.path("adapters")) {
            Ok(bytes) => Ok((number, Some(bytes))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok((number, None)),
            Err(error) => Err(error.into()),
        }
    }
    pub fn state(&self) -> u64 {
        self.state.load(Ordering::Acquire)
    }
    pub fn forget(&self) -> Result<()> {
        Ok(fs::remove_dir_all(&self.folder)?)
    }
}
