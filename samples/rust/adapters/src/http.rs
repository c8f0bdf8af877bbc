//! The doors by HTTP. What blocks runs on threads of its own (`blocking`), so that no door waits behind another.
use crate::failure::{Failure, Result};
use crate::tutor::{Memory, Tutor, Value};
use crate::user::{Phase, Status, Wish};
use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, JsonRejection};
use axum::extract::{DefaultBodyLimit, Path, Request, State};
use axum::http::header::AUTHORIZATION;
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::Response;
use axum::routing::{get, post, put};
use axum::{Json, Router};
use epl::{Call, CancelToken};
use futures_util::stream::{self, Stream};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use tokio::sync::watch;

const LARGEST_UPLOAD: usize = 256 << 20;

pub fn router(tutor: Arc<Tutor>, token: Option<String>) -> Router {
    Router::new()
        .route("/v1/memory", get(memory))
        .route("/v1/users", get(|State(tutor): State<Arc<Tutor>>| async move { Json(tutor.list()) }))
        .route("/v1/users/{user}", get(status).delete(forget))
        .route("/v1/users/{user}/data/{file}", put(put_data).layer(DefaultBodyLimit::max(LARGEST_UPLOAD)))
        .route("/v1/users/{user}/start", post(start))
        .route("/v1/users/{user}/pause", post(pause))
        .route("/v1/users/{user}/events", get(events))
        .route("/v1/users/{user}/predict", post(predict))
        .route("/v1/users/{user}/adapters/{file}", get(adapters))
        .with_state(tutor)
        .layer(middleware::from_fn_with_state(token.map(Arc::from), known))
}

/// Compares in a time that does not tell how much of a token was right.
fn same(given: &[u8], token: &[u8]) -> bool {
    given.len() == token.len() && given.iter().zip(token).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

async fn known(State(token): State<Option<Arc<str>>>, request: Request, next: Next) -> Result<Response> {
    if let Some(token) = token {
        // The word before the token has no case.
        let header = request.headers().get(AUTHORIZATION).map_or(&b""[..], |one| one.as_bytes());
        let (scheme, given) = header.split_at(header.len().min(7));
        if !scheme.eq_ignore_ascii_case(b"bearer ") || !same(given, token.as_bytes()) {
            return Err(Failure::Stranger);
        }
    }
    Ok(next.run(request).await)
}

async fn blocking<T: Send + 'static>(f: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(f).await.unwrap_or_else(|_| Err(Failure::Ends))
}

/// What was set apart at the start, and what the engine has now: tensors of requests and of data are on top of it.
#[derive(Serialize)]
struct InUse {
    #[serde(flatten)]
    memory: Memory,
    bytes_in_use: u64,
}

async fn memory(State(tutor): State<Arc<Tutor>>) -> Json<InUse> {
    Json(InUse { memory: tutor.memory, bytes_in_use: tutor.engine.memory_bytes() })
}

async fn status(State(tutor): State<Arc<Tutor>>, Path(user): Path<String>) -> Result<Json<Status>> {
    Ok(Json(tutor.user(&user)?.status.borrow().clone()))
}

async fn forget(State(tutor): State<Arc<Tutor>>, Path(user): Path<String>) -> Result<StatusCode> {
    blocking(move || tutor.forget(&user)).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn put_data(
    State(tutor): State<Arc<Tutor>>, Path((user, file)): Path<(String, String)>,
    body: std::result::Result<Bytes, BytesRejection>,
) -> Result<(StatusCode, Json<Status>)> {
    let body = body?;
    let user = blocking(move || tutor.put_data(&user, &file, &body)).await?;
    let status = user.status.borrow().clone();
    Ok((StatusCode::CREATED, Json(status)))
}

/// A body of JSON, or what is wrong with it: that is told as JSON as well.
type Sent<T> = std::result::Result<Json<T>, JsonRejection>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Start {
    steps: i64,
    #[serde(default)]
    dataset: serde_json::Map<String, serde_json::Value>,
}

async fn start(State(tutor): State<Arc<Tutor>>, Path(user): Path<String>, asked: Sent<Start>) -> Result<Json<Status>> {
    let Json(asked) = asked?;
    let user = tutor.user(&user)?;
    let wish = Wish { steps: asked.steps, dataset: asked.dataset, ..Default::default() };
    Ok(Json(blocking(move || tutor.start(&user, &wish)).await?))
}

/// A body is read, though it says nothing: where one is left unread, the connection is not used again.
async fn pause(State(tutor): State<Arc<Tutor>>, Path(user): Path<String>, _: Bytes) -> Result<Json<Status>> {
    let user = tutor.user(&user)?;
    let (mut status, mut ending) = (user.status.subscribe(), tutor.ending());
    blocking(move || tutor.pause(&user)).await?;
    let now = tokio::select! {
        now = status.wait_for(|s| !matches!(s.phase, Phase::Training | Phase::Waiting)) => now.map(|s| s.clone()),
        _ = ending.wait_for(|ends| *ends) => return Err(Failure::Ends),
    };
    now.map(Json).map_err(|_| Failure::Ends)
}

async fn predict(
    State(tutor): State<Arc<Tutor>>, Path(user): Path<String>, asked: Sent<Asked>,
) -> Result<Json<serde_json::Value>> {
    let Json(asked) = asked?;
    let user = tutor.user(&user)?;
    let token = CancelToken::new(&tutor.engine)?;
    let _stops_when_the_client_goes = token.drop_guard();
    let call = Call::new().cancel(&token);
    let (step, outputs) = blocking(move || tutor.predict(&user, &asked.inputs, &call)).await?;
    Ok(Json(serde_json::json!({ "step": step, "outputs": outputs })))
}

#[derive(Deserialize)]
struct Asked {
    inputs: BTreeMap<String, Value>,
}

async fn adapters(State(tutor): State<Arc<Tutor>>, Path((user, file)): Path<(String, String)>) -> Result<Vec<u8>> {
    let user = tutor.user(&user)?;
    blocking(move || tutor.export(&user, &file)).await
}

/// The status now and after each change, until the training is done or has failed. Who is slow misses what came between.
async fn events(
    State(tutor): State<Arc<Tutor>>, Path(user): Path<String>,
) -> Result<Sse<impl Stream<Item = std::result::Result<Event, Infallible>>>> {
    struct Watcher {
        status: watch::Receiver<Status>,
        ending: watch::Receiver<bool>,
        over: bool,
    }
    let mut status = tutor.user(&user)?.status.subscribe();
    status.mark_changed(); // the first event is what is now
    let watcher = Watcher { status, ending: tutor.ending(), over: false };
    let events = stream::unfold(watcher, |mut w| async move {
        if w.over {
            return None;
        }
        tokio::select! {
            changed = w.status.changed() => changed.ok()?,
            _ = w.ending.wait_for(|ends| *ends) => return None,
        }
        let now = w.status.borrow_and_update().clone();
        w.over = matches!(now.phase, Phase::Done | Phase::Failed);
        let event = Event::default().id(now.step.to_string()).json_data(&now).expect("a status is JSON");
        Some((Ok(event), w))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::default()))
}
