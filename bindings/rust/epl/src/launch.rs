use crate::error::{Error, Result};
use crate::plan::PlanOptions;
use crate::session::SessionOptions;
use std::env::var;
use std::io::Read;

/// What `epl launch` says in the environment of a process that it has started, each of which has one rank.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct Launch {
    /// Of this process.
    pub rank: u64,
    /// Of the job.
    pub ranks: u64,
    /// Among the processes of this host.
    pub local_rank: u64,
    /// Processes of this host.
    pub local_ranks: u64,
    /// Where they meet; empty for a program that was started alone.
    pub rendezvous: String,
    secret: String,
}

fn number(name: &str, otherwise: Option<u64>) -> Result<u64> {
    match (var(name), otherwise) {
        (Err(_), Some(otherwise)) => Ok(otherwise),
        (text, _) => {
            let text = text.unwrap_or_default();
            text.parse().map_err(|_| Error::invalid(format!("{name} is {text:?}, which is no number")))
        }
    }
}

impl Launch {
    /// Reads the variables of `epl launch` (docs/processes.md). Without them it is of a program that was started alone. The
    /// library reads no environment; this does, for a program that asks.
    pub fn from_env() -> Result<Launch> {
        if var("EPL_RANK").is_err() {
            return Ok(Launch { ranks: 1, local_ranks: 1, ..Default::default() });
        }
        let mut secret = Vec::new();
        if var("EPL_SECRET_FD").is_ok() {
            // Opened anew, from its start: the descriptor itself stays as it is, for whoever else reads it.
            let path = format!("/proc/self/fd/{}", number("EPL_SECRET_FD", None)?);
            let read = std::fs::File::open(&path).and_then(|file| file.take(256).read_to_end(&mut secret));
            read.map_err(|why| Error::invalid(format!("the secret of EPL_SECRET_FD cannot be read: {why}")))?;
        }
        Ok(Launch {
            rank: number("EPL_RANK", None)?,
            ranks: number("EPL_WORLD_SIZE", None)?,
            local_rank: number("EPL_LOCAL_RANK", Some(0))?,
            local_ranks: number("EPL_LOCAL_WORLD_SIZE", Some(1))?,
            rendezvous: var("EPL_RENDEZVOUS").unwrap_or_default(),
            secret: String::from_utf8(secret).map_err(|_| Error::invalid("the secret is no UTF-8".to_string()))?,
        })
    }
    /// Of a job in which each process has one rank.
    pub fn plan_options(&self) -> PlanOptions {
        PlanOptions { ranks: self.ranks, local_ranks: 1, ..Default::default() }
    }
    /// Which rank this process has, and where the others are.
    pub fn session_options(&self) -> SessionOptions {
        if self.ranks <= 1 {
            return SessionOptions::default();
        }
        SessionOptions {
            first_rank: self.rank,
            ranks: 1,
            rendezvous: self.rendezvous.clone(),
            secret: self.secret.clone(),
            ..Default::default()
        }
    }
}

impl std::fmt::Debug for Launch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Launch {{ rank: {}, ranks: {} }}", self.rank, self.ranks)
    }
}
