//! A seat: one session, with the base's weights, in which the adapters of one user after another are trained.
use crate::failure::Result;
use crate::tutor::Tutor;
use crate::user::{Phase, User};
use epl::{Call, Dataset, Entry, Plan, Predictor, Session, SessionOptions};
use std::sync::{Arc, Mutex};

/// What others see of a seat: the predictor beside its session, and whose weights it has.
pub struct Seat {
    pub taken: Mutex<Taken>,
}

pub struct Taken {
    pub by: Option<String>,
    pub predictor: Predictor,
}

/// What the seat's thread alone has.
pub struct Worker {
    pub seat: Arc<Seat>,
    session: Session,
}

impl Worker {
    pub fn new(plan: &Plan) -> Result<Worker> {
        let session = Session::new(plan, &SessionOptions::default(), &Call::new())?;
        let predictor = Predictor::new(&session, plan, &Call::new())?;
        Ok(Worker { seat: Arc::new(Seat { taken: Mutex::new(Taken { by: None, predictor }) }), session })
    }
    /// How a user begins: adapters that change nothing yet.
    pub fn beginning(&mut self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.session.save_to(&mut bytes, None, &Call::new())?;
        Ok(bytes)
    }
    /// Trains whoever is next, until the service ends.
    pub fn run(mut self, tutor: &Tutor) {
        while let Some(user) = tutor.next() {
            let taught = self.teach(tutor, &user);
            self.leave(&user);
            let (phase, error) = match taught {
                Ok(phase) => (phase, None),
                Err(failure) => {
                    let mut wish = user.wish.lock().unwrap();
                    wish.running = false;
                    let noted = user.note(&wish).err().map_or(String::new(), |e| format!("; {e}"));
                    (Phase::Failed, Some(format!("{failure}{noted}")))
                }
            };
            tutor.release(user, phase, error);
        }
    }
    /// Seats a user: the session and its predictor get the user's adapters.
    fn take(&mut self, tutor: &Tutor, user: &Arc<User>, data: &mut Dataset) -> Result<()> {
        let mut taken = self.seat.taken.lock().unwrap(); // predictions wait, so none is of two users
        match user.saved()?.1 {
            Some(state) => self.session.load_bytes(&state, Some(data), &Call::new())?,
            None => self.session.load_bytes(&tutor.beginning, None, &Call::new())?,
        }
        taken.predictor.refresh(&Call::new())?;
        taken.by = Some(user.name.clone());
        *user.seat.lock().unwrap() = Some(self.seat.clone());
        Ok(())
    }
    fn leave(&self, user: &User) {
        self.seat.taken.lock().unwrap().by = None;
        *user.seat.lock().unwrap() = None;
    }
    /// Makes steps for a user until they are made, or it is somebody else's turn. Whatever ends it, no step is lost.
    /// Gives the user's phase, where nothing more is wanted.
    fn teach(&mut self, tutor: &Tutor, user: &Arc<User>) -> Result<Phase> {
        let wish = user.wish.lock().unwrap().clone();
        let mut options = wish.dataset.clone();
        options.insert("batch".into(), tutor.batch.into());
        let options = serde_json::Value::Object(options).to_string();
        let mut data = Dataset::open(&tutor.engine, user.data(&wish.file), &options, &Call::new())?;
        data.bind(&tutor.plan, Entry::TRAIN)?;
        self.take(tutor, user, &mut data)?;
        let step = self.session.steps();
        user.status.send_modify(|s| (s.phase, s.step, s.error) = (Phase::Training, step, None));
        let result = self.steps(tutor, user, &mut data);
        // After an error the session is as the last good step left it.
        let saved = self.save(user, &mut data);
        result.and(saved)?;
        let mut wish = user.wish.lock().unwrap();
        if self.session.steps() < wish.steps {
            return Ok(Phase::Paused);
        }
        wish.running = false;
        user.note(&wish)?;
        Ok(Phase::Done)
    }
    fn steps(&mut self, tutor: &Tutor, user: &User, data: &mut Dataset) -> Result<()> {
        for made in 1.. {
            let (steps, running) = {
                let wish = user.wish.lock().unwrap();
                (wish.steps, wish.running)
            };
            if tutor.ends() || !running || self.session.steps() >= steps {
                return Ok(());
            }
            let batch = data.next_batch(&Call::new())?;
            let metrics = self.session.step(&batch, &Call::new())?;
            user.status.send_modify(|s| (s.step, s.steps, s.loss) = (metrics.step, steps, metrics.loss));
            if made % tutor.turn == 0 {
                self.save(user, data)?;
                if tutor.others_wait() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
    fn save(&mut self, user: &User, data: &mut Dataset) -> Result<()> {
        let steps = self.session.steps();
        if steps == user.status.borrow().saved_step {
            return Ok(());
        }
        let mut bytes = Vec::new();
        self.session.save_to(&mut bytes, Some(data), &Call::new())?;
        user.save(steps, &bytes)
    }
}
