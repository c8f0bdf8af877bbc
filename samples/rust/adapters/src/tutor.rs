//! The tutor: one base model, a few seats, and users whose adapters take turns in them.
use crate::failure::{Failure, Result};
use crate::seat::Worker;
use crate::user::{plain, Phase, Status, User, Wish};
use epl::{Call, DType, Engine, Entry, FolderLock, Model, Plan, PlanOptions, Session, SessionOptions, Tensor, Trainer};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use tokio::sync::watch;

pub struct Options {
    /// The base: an ONNX file.
    pub model: PathBuf,
    /// JSON, docs/training.md: what is adapted, by which optimizer, in batches of which size.
    pub trainer: String,
    /// Where users are kept.
    pub folder: PathBuf,
    /// Bytes for all sessions and predictors, as their plan counts them; 0: no limit.
    pub budget: u64,
    /// Users that are trained at the same time, at most.
    pub seats: u64,
    /// Threads of a seat; 0: one for each processor.
    pub threads: u32,
    /// Steps before it is somebody else's turn.
    pub turn: i64,
}

/// A tensor as clients write it: its elements row by row.
#[derive(Debug, Deserialize, Serialize)]
pub struct Value {
    pub dims: Vec<i64>,
    pub values: Vec<f64>,
}

pub struct Tutor {
    pub engine: Engine,
    pub plan: Plan,
    /// The state of a user who has made no step.
    pub beginning: Vec<u8>,
    pub batch: i64,
    pub turn: i64,
    pub memory: Memory,
    folder: PathBuf,
    /// Tasks look here, so nobody who has it reads or writes files.
    users: Mutex<BTreeMap<String, Arc<User>>>,
    /// Whoever takes up the folder of a new user, or removes one.
    folders: Mutex<()>,
    queue: Mutex<Queue>,
    news: Condvar,
    ending: watch::Sender<bool>,
    /// A session for users who are not seated: they are only read.
    reader: Mutex<Reader>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// No other process trains the same users.
    _owner: FolderLock,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Arc<User>>,
    /// Those who wait or are seated.
    busy: HashSet<String>,
}

struct Reader {
    session: Session,
    /// The number of the state that it has.
    state: u64,
}

/// Where the memory goes, by the numbers of the plan. It does not grow with the number of users.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Memory {
    pub seats: u64,
    pub bytes_per_seat: u64,
    pub bytes_of_the_reader: u64,
    pub budget: u64,
}

impl Memory {
    /// As many seats as fit, up to `wanted`. Nothing is allocated for them yet: the plan knows what a session takes, and
    /// the predictor beside it.
    fn share(plan: &Plan, wanted: u64, budget: u64) -> Result<Memory> {
        #[derive(Deserialize)]
        struct Document {
            predictor_bytes: u64,
        }
        let text = plan.describe("memory", &Call::new())?;
        let Document { predictor_bytes } = serde_json::from_str(&text).expect("the library writes JSON");
        let session = plan.memory_bytes_peak(0).expect("a plan has a rank");
        let (seat, wanted) = (session + predictor_bytes, wanted.max(1));
        let memory = |seats| Memory { seats, bytes_per_seat: seat, bytes_of_the_reader: session, budget };
        if budget == 0 {
            return Ok(memory(wanted));
        }
        if budget < session + seat {
            let (least, few) = (session + seat, session + seat - budget);
            return Err(Failure::Wrong(format!(
                "one seat of {seat} bytes and a session of {session} to read with need {least}, and the budget is \
                 {budget}: {few} too few; a smaller batch or rank needs less"
            )));
        }
        let seats = ((budget - session) / seat).min(wanted);
        if seats < wanted {
            let more = session + (seats + 1) * seat;
            eprintln!(
                "adapters: {seats} of {wanted} seats: {} would need {more} bytes and the budget is {budget}, {} too few",
                seats + 1,
                more - budget
            );
        }
        Ok(memory(seats))
    }
}

impl Tutor {
    pub fn open(options: Options) -> Result<Arc<Tutor>> {
        let call = Call::new();
        let engine = Engine::builder().threads(options.threads).build()?;
        fs::create_dir_all(&options.folder)?;
        let owner = FolderLock::new(&engine, &options.folder)?;
        let model = Model::load(&engine, &options.model, &call)?;
        let mut trainer = Trainer::parse(&engine, &options.trainer)?;
        let plan = Plan::new(&model, Some(&mut trainer), None, &PlanOptions::default(), &call)?;
        let inputs = plan.inputs(Entry::TRAIN)?;
        let batch = inputs.first().and_then(|one| one.dims.first()).copied().unwrap_or(1);

        let memory = Memory::share(&plan, options.seats, options.budget)?;
        let mut first = Worker::new(&plan)?;
        let beginning = first.beginning()?;
        let reader = Reader { session: Session::new(&plan, &SessionOptions::default(), &call)?, state: 0 };

        let tutor = Arc::new(Tutor {
            engine,
            plan,
            beginning,
            batch,
            turn: options.turn.max(1),
            memory,
            folder: options.folder,
            users: Mutex::default(),
            folders: Mutex::default(),
            queue: Mutex::default(),
            news: Condvar::new(),
            ending: watch::Sender::new(false),
            reader: Mutex::new(reader),
            threads: Mutex::default(),
            _owner: owner,
        });
        tutor.take_up_users()?;
        let mut worker = Some(first);
        for _ in 0..memory.seats {
            let worker = match worker.take() {
                Some(first) => first,
                None => Worker::new(&tutor.plan)?,
            };
            let for_the_thread = tutor.clone();
            let thread = std::thread::spawn(move || worker.run(&for_the_thread));
            tutor.threads.lock().unwrap().push(thread);
        }
        Ok(tutor)
    }
    /// Users who were in training go on.
    fn take_up_users(&self) -> Result<()> {
        fs::create_dir_all(&self.folder)?;
        let mut folders = fs::read_dir(&self.folder)?.map(|one| Ok(one?.path())).collect::<Result<Vec<_>>>()?;
        folders.sort();
        for folder in folders.into_iter().filter(|one| one.is_dir()) {
            let user = match User::open(folder.clone()) {
                Ok(user) => Arc::new(user),
                Err(failure) => {
                    eprintln!("adapters: {} is left alone: {failure}", folder.display());
                    continue;
                }
            };
            if user.wish.lock().unwrap().running {
                self.enqueue(&user);
            }
            self.users.lock().unwrap().insert(user.name.clone(), user);
        }
        Ok(())
    }

    // What seats ask.

    pub fn ends(&self) -> bool {
        *self.ending.borrow()
    }
    /// The next user for a seat; none when the service ends.
    pub fn next(&self) -> Option<Arc<User>> {
        let mut queue = self.queue.lock().unwrap();
        loop {
            if self.ends() {
                return None;
            }
            if let Some(user) = queue.waiting.pop_front() {
                return Some(user);
            }
            queue = self.news.wait(queue).unwrap();
        }
    }
    pub fn others_wait(&self) -> bool {
        !self.queue.lock().unwrap().waiting.is_empty()
    }
    /// Takes a user back from a seat, to the end of the queue where steps are left. Else the user has this phase, which
    /// nobody sees before the user is free: who is told of an end may forget the user at once.
    pub fn release(&self, user: Arc<User>, phase: Phase, error: Option<String>) {
        let mut queue = self.queue.lock().unwrap();
        let waits = user.wish.lock().unwrap().running;
        if !waits {
            queue.busy.remove(&user.name);
        }
        user.status.send_modify(|s| {
            s.phase = if waits { Phase::Waiting } else { phase };
            s.error = error.or(s.error.take());
        });
        if waits {
            queue.waiting.push_back(user);
            self.news.notify_one();
        }
    }

    // What clients ask.

    /// Triggers when the service ends.
    pub fn ending(&self) -> watch::Receiver<bool> {
        self.ending.subscribe()
    }
    pub fn user(&self, name: &str) -> Result<Arc<User>> {
        let user = self.users.lock().unwrap().get(name).cloned();
        user.ok_or_else(|| Failure::Unknown(format!("there is no user {name:?}")))
    }
    pub fn list(&self) -> Vec<Status> {
        self.users.lock().unwrap().values().map(|one| one.status.borrow().clone()).collect()
    }
    /// Keeps a user's data, and makes the user where it is new. The data of a training stay what they are.
    pub fn put_data(&self, name: &str, file: &str, bytes: &[u8]) -> Result<Arc<User>> {
        plain(file)?;
        let user = match self.user(plain(name)?) {
            Ok(user) => user,
            Err(_) => self.take_up(name)?,
        };
        {
            let mut wish = user.wish.lock().unwrap();
            if wish.steps > 0 {
                return Err(Failure::Conflict(format!("{name} has been in training: delete the user to begin anew")));
            }
            user.keep(file, bytes)?;
            wish.file = file.into();
            user.note(&wish)?;
        }
        Ok(user)
    }
    /// A user who is new, unless another request was faster.
    fn take_up(&self, name: &str) -> Result<Arc<User>> {
        let _folders = self.folders.lock().unwrap();
        if let Ok(user) = self.user(name) {
            return Ok(user);
        }
        let user = Arc::new(User::open(self.folder.join(name))?);
        self.users.lock().unwrap().insert(name.into(), user.clone());
        Ok(user)
    }
    /// Trains until so many steps are made in all. Options of the dataset are those of the first time.
    pub fn start(&self, user: &Arc<User>, asked: &Wish) -> Result<Status> {
        if self.ends() {
            return Err(Failure::Ends);
        }
        {
            let mut wish = user.wish.lock().unwrap();
            if wish.file.is_empty() {
                return Err(Failure::Conflict(format!("{} has no data yet", user.name)));
            }
            if asked.steps <= 0 {
                return Err(Failure::Wrong("steps must be positive".into()));
            }
            if wish.steps == 0 {
                wish.dataset = asked.dataset.clone();
            } else if !asked.dataset.is_empty() && asked.dataset != wish.dataset {
                return Err(Failure::Conflict("the dataset's options are those of the first time".into()));
            }
            (wish.steps, wish.running) = (asked.steps, true);
            user.note(&wish)?;
        }
        self.enqueue(user);
        Ok(user.status.borrow().clone())
    }
    fn enqueue(&self, user: &Arc<User>) {
        let steps = user.wish.lock().unwrap().steps;
        let mut queue = self.queue.lock().unwrap();
        user.status.send_modify(|s| s.steps = steps);
        if queue.busy.insert(user.name.clone()) {
            user.status.send_modify(|s| s.phase = Phase::Waiting);
            queue.waiting.push_back(user.clone());
            self.news.notify_one();
        }
    }
    /// Stops after the step under way. Who wants to know when waits for the phase to be another.
    pub fn pause(&self, user: &Arc<User>) -> Result<()> {
        {
            let mut wish = user.wish.lock().unwrap();
            if !wish.running {
                return Err(Failure::Conflict(format!("{} is not in training", user.name)));
            }
            wish.running = false;
            user.note(&wish)?;
        }
        let mut queue = self.queue.lock().unwrap();
        if let Some(place) = queue.waiting.iter().position(|one| Arc::ptr_eq(one, user)) {
            queue.waiting.remove(place);
            queue.busy.remove(&user.name);
            user.status.send_modify(|s| s.phase = Phase::Paused);
        }
        Ok(())
    }
    /// Forgets a user, who must not be in training.
    pub fn forget(&self, name: &str) -> Result<()> {
        let _folders = self.folders.lock().unwrap(); // the next one of the name begins in an empty folder
        let user = self.user(name)?;
        {
            let mut users = self.users.lock().unwrap();
            if self.queue.lock().unwrap().busy.contains(name) {
                return Err(Failure::Conflict(format!("{name} is in training: pause it first")));
            }
            users.remove(name);
        }
        let forgotten = user.forget();
        if forgotten.is_err() {
            self.users.lock().unwrap().insert(name.into(), user); // what is left of it can be asked for again
        }
        forgotten
    }
    /// What the model says with a user's adapters, and after which step: the last one of a user who is seated, beside
    /// the steps; else the last that was saved.
    pub fn predict(
        &self, user: &User, given: &BTreeMap<String, Value>, call: &Call,
    ) -> Result<(i64, BTreeMap<String, Value>)> {
        let mut inputs = Vec::new();
        for info in self.plan.inputs(Entry::PREDICT)? {
            let value = given.get(&info.name);
            let value = value.ok_or_else(|| Failure::Wrong(format!("input {:?} is missing", info.name)))?;
            inputs.push(tensor_of(&self.engine, info.dtype, value)?);
        }
        let answer = |step: i64, outputs: Vec<Tensor<'static>>| {
            let names = self.plan.outputs(Entry::PREDICT)?;
            let named = names.into_iter().zip(outputs);
            Ok((step, named.map(|(info, one)| Ok((info.name, value_of(&one)?))).collect::<Result<_>>()?))
        };
        let seat = user.seat.lock().unwrap().clone();
        if let Some(seat) = seat {
            let mut taken = seat.taken.lock().unwrap();
            if taken.by.as_ref() == Some(&user.name) {
                taken.predictor.refresh(call)?;
                let outputs = taken.predictor.predict(&inputs, call)?;
                return answer(taken.predictor.steps(), outputs);
            }
        }
        self.read(user, |session| {
            let outputs = session.predict(&self.plan, &inputs, call)?;
            answer(session.steps(), outputs)
        })
    }
    /// Does something with a session that has the user's adapters as they were last saved.
    fn read<T>(&self, user: &User, f: impl FnOnce(&mut Session) -> Result<T>) -> Result<T> {
        let mut reader = self.reader.lock().unwrap();
        if reader.state != user.state() {
            let (number, state) = user.saved()?;
            reader.session.load_bytes(state.as_deref().unwrap_or(&self.beginning), None, &Call::new())?;
            reader.state = number;
        }
        f(&mut reader.session)
    }
    /// A file of the adapters as they were last saved, as Hugging Face PEFT has them.
    pub fn export(&self, user: &User, file: &str) -> Result<Vec<u8>> {
        if !["adapter_model.safetensors", "adapter_config.json"].contains(&file) {
            return Err(Failure::Unknown(format!("adapters have no file {file:?}")));
        }
        let folder = user.path("export");
        self.read(user, |session| {
            session.export_adapters(&folder, &Call::new())?;
            let bytes = fs::read(folder.join(file))?;
            fs::remove_dir_all(&folder)?;
            Ok(bytes)
        })
    }
    /// Lets every seat end the step it is in, and save. No step is lost.
    pub fn end(&self) {
        {
            let _queue = self.queue.lock().unwrap(); // nobody is between looking and waiting
            self.ending.send_replace(true);
            self.news.notify_all();
        }
        for thread in std::mem::take(&mut *self.threads.lock().unwrap()) {
            thread.join().expect("a seat does not panic");
        }
    }
}

fn tensor_of(engine: &Engine, dtype: DType, value: &Value) -> Result<Tensor<'static>> {
    let (values, dims) = (&value.values, &value.dims);
    Ok(match dtype {
        DType::F32 => Tensor::new(engine, &values.iter().map(|one| *one as f32).collect::<Vec<_>>(), dims)?,
        DType::F64 => Tensor::new(engine, values, dims)?,
        DType::I64 => Tensor::new(engine, &values.iter().map(|one| *one as i64).collect::<Vec<_>>(), dims)?,
        DType::I32 => Tensor::new(engine, &values.iter().map(|one| *one as i32).collect::<Vec<_>>(), dims)?,
        other => return Err(Failure::Wrong(format!("inputs of type {other:?} cannot be given as numbers"))),
    })
}

fn value_of(tensor: &Tensor<'_>) -> Result<Value> {
    let values = match tensor.dtype() {
        DType::F32 => tensor.view::<f32>()?.iter().map(|one| f64::from(*one)).collect(),
        DType::F64 => tensor.view::<f64>()?.to_vec(),
        DType::I64 => tensor.view::<i64>()?.iter().map(|one| *one as f64).collect(),
        other => return Err(Failure::Wrong(format!("outputs of type {other:?} cannot be given as numbers"))),
    };
    Ok(Value { dims: tensor.dims(), values })
}
