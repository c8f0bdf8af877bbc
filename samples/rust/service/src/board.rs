//! Gives every watcher the newest status of each job that it watches. A watcher that is slow misses what came between,
//! never the newest, and never holds up a training.
use crate::spec::Status;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use tokio::sync::{watch, Notify};

pub struct Watcher {
    /// None: all.
    job: Option<String>,
    /// What was not read yet.
    news: Mutex<HashMap<String, Status>>,
    wake: Notify,
}

impl Watcher {
    pub fn put(&self, status: &Status) {
        if self.job.as_ref().is_some_and(|job| *job != status.id) {
            return;
        }
        let mut news = self.news.lock().unwrap();
        let mut status = status.clone();
        if let (None, Some(old)) = (&status.log, news.get(&status.id)) {
            status.log = old.log.clone(); // a line that was not read yet is not lost to a mere number
        }
        news.insert(status.id.clone(), status);
        self.wake.notify_one();
    }
    /// What is new, in the order of the jobs, once there is something.
    pub async fn take(&self) -> Vec<Status> {
        self.wake.notified().await;
        let mut all: Vec<Status> = self.news.lock().unwrap().drain().map(|(_, status)| status).collect();
        all.sort_by_key(Status::time);
        all
    }
}

pub struct Board {
    watchers: Mutex<Vec<Weak<Watcher>>>,
    ends: watch::Sender<bool>,
}

impl Board {
    pub fn new() -> Board {
        Board { watchers: Mutex::new(Vec::new()), ends: watch::Sender::new(false) }
    }
    pub fn watch(&self, job: Option<String>) -> Arc<Watcher> {
        let made = Arc::new(Watcher { job, news: Mutex::new(HashMap::new()), wake: Notify::new() });
        self.watchers.lock().unwrap().push(Arc::downgrade(&made));
        made
    }
    pub fn send(&self, status: &Status) {
        self.watchers.lock().unwrap().retain(|one| match one.upgrade() {
            Some(watcher) => {
                watcher.put(status);
                true
            }
            None => false,
        });
    }
    /// Tells when the service ends.
    pub fn ending(&self) -> watch::Receiver<bool> {
        self.ends.subscribe()
    }
    pub fn ends(&self) -> bool {
        *self.ends.borrow()
    }
    pub fn end(&self) {
        self.ends.send_replace(true);
    }
}
