//! The jobs of one folder, under one memory budget. The folder has `uploads` and `jobs`.
use crate::board::Board;
use crate::failure::{Failure, Result};
use crate::job::{open_data, Job, Note, World};
use crate::spec::{Phase, Spec, Status};
use crate::uploads::{Limits, Upload, Uploads};
use axum::http::StatusCode;
use epl::{Call, Engine, Entry, FolderLock, Model, Plan, PlanOptions, Strategy, Trainer};
use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

pub struct Manager {
    pub board: Arc<Board>,
    pub uploads: Arc<Uploads>,
    pub engine: Arc<Engine>,
    world: World,
    folder: PathBuf,
    budget: u64,
    jobs: Mutex<HashMap<String, Arc<Job>>>,
    /// Of jobs that are not let in yet.
    coming: Mutex<HashMap<String, Spec>>,
    /// A job after the other is let in. It has when the last one was created: no two at once.
    making: Mutex<i64>,
    /// No other process trains the same jobs.
    owner: Mutex<Option<FolderLock>>,
}

/// Nobody guesses the next one: the hasher's keys are random.
pub fn new_id() -> String {
    format!("{:016x}", RandomState::new().build_hasher().finish())
}

impl Manager {
    /// Takes up a folder with what is in it: jobs that ran go on from their last checkpoint.
    pub fn open(folder: &Path, limits: Limits, threads: u32) -> Result<Arc<Manager>> {
        fs::create_dir_all(folder)?;
        let folder = fs::canonicalize(folder)?;
        let engine = Arc::new(Engine::builder().threads(threads).build()?);
        let owner = FolderLock::new(&engine, &folder)?;
        let deleted = folder.join("jobs/deleted");
        if deleted.exists() {
            fs::remove_dir_all(&deleted)?;
        }
        for one in [folder.join("uploads"), deleted] {
            fs::create_dir_all(one)?;
        }
        // What a client hears of an error: paths of this machine are cut down to what the client knows.
        let known = [format!("{}/uploads/", folder.display()), format!("{}/", folder.display())];
        let told = Arc::new(move |text: &str| text.replace(&known[0], "").replace(&known[1], ""));
        let (board, uploads) = (Arc::new(Board::new()), Uploads::open(&folder.join("uploads"), limits)?);
        let world = World { engine: engine.clone(), board: board.clone(), uploads: uploads.clone(), told };
        let (jobs, making, owner) = (Mutex::new(HashMap::new()), Mutex::new(0), Mutex::new(Some(owner)));
        let (budget, coming) = (limits.budget, Mutex::new(HashMap::new()));
        let manager = Arc::new(Manager { board, uploads, engine, world, folder, budget, jobs, coming, making, owner });
        let mut found: Vec<_> = fs::read_dir(manager.folder.join("jobs"))?.collect::<std::io::Result<Vec<_>>>()?;
        found.sort_by_key(fs::DirEntry::file_name);
        for one in found.iter().filter(|one| one.path().join("job.json").exists()) {
            manager.take_up(&one.file_name().to_string_lossy(), &one.path())?;
        }
        Ok(manager)
    }
    pub fn told(&self, text: &str) -> String {
        (self.world.told)(text)
    }
    fn take_up(&self, id: &str, folder: &Path) -> Result<()> {
        let note: Note = match serde_json::from_slice(&fs::read(folder.join("job.json"))?) {
            Ok(note) => note,
            Err(error) => {
                eprintln!("job {id} cannot go on: {error}");
                return Ok(());
            }
        };
        let (spec, mut status) = (note.spec, note.status);
        let mut last = self.making.lock().unwrap();
        *last = status.created.max(*last);
        if status.phase != Phase::Failed {
            let begun = Status::begin(id, status.phase, spec.steps, status.created);
            let Err(failure) = self.begin(spec.clone(), begun) else { return Ok(()) };
            // Its note keeps its phase: at the next start there may be what it lacks.
            eprintln!("job {id} cannot go on: {failure}");
            (status.phase, status.error) = (Phase::Failed, Some(self.told(&failure.message)));
        }
        status.memory_bytes = 0;
        let job = Arc::new(Job::new(&self.world, folder.into(), spec, status));
        self.jobs.lock().unwrap().insert(id.into(), job);
        Ok(())
    }
    /// Plans a job, which bounds its memory before anything is allocated, and takes it on if the budget allows.
    pub fn create(&self, mut spec: Spec) -> Result<Arc<Job>> {
        spec.check()?;
        let id = new_id();
        {
            let _making = self.making.lock().unwrap(); // no upload is being deleted
            self.coming.lock().unwrap().insert(id.clone(), spec.clone());
        }
        let made = self.make(&id, spec);
        self.coming.lock().unwrap().remove(&id);
        made
    }
    fn make(&self, id: &str, spec: Spec) -> Result<Arc<Job>> {
        self.uploads.find(&spec.model)?;
        // What cannot run is not taken on.
        let plan = self.plan(&spec)?;
        open_data(&self.world, &spec, &plan)?.check(&plan, Entry::TRAIN, &Call::new())?;
        drop(plan);
        let mut last = self.making.lock().unwrap();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |one| one.as_millis() as i64);
        *last = now.max(*last + 1);
        let begun = self.begin(spec.clone(), Status::begin(id, Phase::Waiting, spec.steps, *last));
        if begun.is_err() {
            let _ = fs::remove_dir_all(self.folder.join("jobs").join(id));
        }
        begun
    }
    /// Lets a job begin, if the budget has room for its session and its predictor, before either is made.
    fn begin(&self, spec: Spec, mut status: Status) -> Result<Arc<Job>> {
        if self.board.ends() {
            return Err(Failure::ends());
        }
        let plan = self.plan(&spec)?;
        let bytes = bytes_of(&plan)?;
        let used: u64 = self.list().iter().map(|one| one.memory_bytes).sum();
        let free = self.budget.saturating_sub(used);
        if self.budget > 0 && bytes > free {
            let text = format!(
                "the job needs {bytes} bytes, with those to predict while it trains, and the budget has {free} left: {} \
                 too few; a smaller batch or more micro-batches need less",
                bytes - free
            );
            return Err(Failure::new(StatusCode::INSUFFICIENT_STORAGE, text));
        }
        let folder = self.folder.join("jobs").join(&status.id);
        fs::create_dir_all(&folder)?;
        status.memory_bytes = bytes;
        let job = Arc::new(Job::new(&self.world, folder, spec, status));
        job.write_note()?;
        job.start(&self.world, plan)?;
        self.board.send(&job.status());
        self.jobs.lock().unwrap().insert(job.status().id, job.clone());
        Ok(job)
    }
    fn plan(&self, spec: &Spec) -> Result<Plan> {
        let call = Call::new();
        let text =
            |one: &serde_json::Map<String, serde_json::Value>| serde_json::Value::Object(one.clone()).to_string();
        let model = Model::load(&self.engine, self.uploads.find(&spec.model)?, &call)?;
        let mut trainer = Trainer::parse(&self.engine, text(&spec.trainer))?;
        let mut strategy = Strategy::parse(&self.engine, &text(&spec.strategy))?;
        let options = PlanOptions { ranks: spec.ranks as u64, ..Default::default() };
        Ok(Plan::new(&model, Some(&mut trainer), Some(&mut strategy), &options, &call)?)
    }
    pub fn job(&self, id: &str) -> Result<Arc<Job>> {
        self.jobs.lock().unwrap().get(id).cloned().ok_or_else(Failure::unknown)
    }
    pub fn list(&self) -> Vec<Status> {
        let mut all: Vec<Status> = self.jobs.lock().unwrap().values().map(|one| one.status()).collect();
        all.sort_by_key(Status::time);
        all
    }
    /// The jobs that need an upload.
    pub fn users(&self, upload: &str) -> Vec<String> {
        let (jobs, coming) = (self.jobs.lock().unwrap(), self.coming.lock().unwrap());
        let specs = jobs.iter().map(|(id, job)| (id, &job.spec)).chain(coming.iter());
        let all: BTreeSet<&String> = specs.filter(|(_, spec)| spec.uses(upload)).map(|(id, _)| id).collect();
        all.into_iter().cloned().collect()
    }
    /// Removes an upload that no job uses. Jobs are not let in meanwhile.
    pub fn delete_upload(&self, id: &str) -> Result<Upload> {
        let _making = self.making.lock().unwrap();
        self.uploads.remove(id, |upload| self.users(upload))
    }
    /// Ends a job between two steps, without a checkpoint, and removes it with its files.
    pub fn delete(&self, job: &Arc<Job>) -> Result<Status> {
        let id = job.status().id;
        let aside = self.folder.join("jobs/deleted").join(&id);
        job.move_to(&aside)?;
        self.jobs.lock().unwrap().remove(&id);
        if aside.exists() {
            fs::remove_dir_all(&aside)?;
        }
        job.change(|s| (s.phase, s.memory_bytes, s.log) = (Phase::Deleted, 0, Some("deleted".into())));
        Ok(job.status())
    }
    /// Lets every job end the step it is in, and saves them all. No step is lost.
    pub fn end(&self) {
        let all: Vec<Arc<Job>> = {
            let _making = self.making.lock().unwrap();
            self.board.end();
            self.jobs.lock().unwrap().values().cloned().collect()
        };
        for job in &all {
            job.wake();
        }
        for job in &all {
            job.join();
        }
        *self.owner.lock().unwrap() = None;
    }
}

/// What a session of a plan and its predictor, if the model has outputs, will take: to the byte.
fn bytes_of(plan: &Plan) -> Result<u64> {
    let ranks = 0..plan.ranks() as u64;
    let session: u64 = ranks.map(|rank| plan.memory_bytes_peak(rank).unwrap_or(0)).sum();
    if plan.outputs(Entry::PREDICT)?.is_empty() {
        return Ok(session);
    }
    let memory = plan.describe("memory", &Call::new())?;
    let memory: serde_json::Value = serde_json::from_str(&memory).map_err(|e| Failure::wrong(e.to_string()))?;
    Ok(session + memory["predictor_bytes"].as_u64().unwrap_or(0))
}
