//! The doors by HTTP. What blocks runs on threads of its own (`blocking`), so that no door waits behind another.
use crate::failure::{Failure, Result};
use crate::job::Job;
use crate::json;
use crate::manager::Manager;
use crate::spec::{Phase, Spec, Status};
use crate::values::{asked, Value};
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, LOCATION, ORIGIN};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::middleware::{self, Next};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Json, Router};
use epl::{Call, CancelToken};
use futures_util::stream::{self, Stream, StreamExt};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

const LARGEST_DOCUMENT: usize = 16 << 20;
const MOST_DRAINED: usize = 64 << 20;
const PAGE: &str = include_str!("../../../service/page.html");
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'";

type Shared = State<Arc<Manager>>;

pub fn router(manager: Arc<Manager>, token: String) -> Router {
    let guarded = (manager.clone(), Arc::<str>::from(token));
    Router::new()
        .route(
            "/",
            get(|| async {
                ([("content-type", "text/html; charset=utf-8"), ("content-security-policy", POLICY)], PAGE)
            }),
        )
        .route("/v1/uploads", get(uploads))
        .route("/v1/uploads/{name}", post(upload).merge(delete(delete_upload)))
        .route("/v1/events", get(|State(manager): Shared| async move { events(&manager, None) }))
        .route("/v1/jobs", get(|State(manager): Shared| async move { Json(manager.list()) }).post(create))
        .route("/v1/jobs/{id}", get(status).delete(delete_job))
        .route("/v1/jobs/{id}/plan", get(plan))
        .route("/v1/jobs/{id}/start", post(|s: Shared, id: Path<String>, r: Request| phase(s, id, r, Phase::Running)))
        .route("/v1/jobs/{id}/resume", post(|s: Shared, id: Path<String>, r: Request| phase(s, id, r, Phase::Running)))
        .route("/v1/jobs/{id}/pause", post(|s: Shared, id: Path<String>, r: Request| phase(s, id, r, Phase::Paused)))
        .route("/v1/jobs/{id}/checkpoint", post(checkpoint))
        .route("/v1/jobs/{id}/predict", post(predict))
        .route("/v1/jobs/{id}/model", get(download))
        .route("/v1/jobs/{id}/history", get(history))
        .route("/v1/jobs/{id}/events", get(job_events))
        .fallback(|| async { Failure::unknown() })
        .method_not_allowed_fallback(|| async { Failure::unknown() })
        .with_state(manager)
        .layer(middleware::from_fn_with_state(guarded, guard))
}

// --- Who may ask

fn text(headers: &HeaderMap, name: impl axum::http::header::AsHeaderName) -> &str {
    headers.get(name).and_then(|one| one.to_str().ok()).unwrap_or_default()
}

/// Refuses what a browser sends for a page of somebody else: pages that a user of this machine looks at reach every
/// address that the machine reaches. A token keeps them out by itself, so that then any name of the host will do.
fn check(method: &Method, uri: &Uri, headers: &HeaderMap, token: &str) -> Result<()> {
    if headers.get_all(HOST).iter().count() != 1 {
        return Err(Failure::wrong("the request has not one header Host"));
    }
    // A target that names a host counts before the header.
    let host = uri.authority().map_or_else(|| text(headers, HOST), |one| one.as_str());
    let origin = text(headers, ORIGIN);
    let authority = origin.split_once("://").map_or("", |(_, rest)| rest);
    let foreign = token.is_empty() && !is_loopback(host)
        || !origin.is_empty() && !authority.eq_ignore_ascii_case(host)
        || text(headers, "sec-fetch-site") == "cross-site" && method != Method::GET && method != Method::HEAD;
    if foreign {
        let message = "the request comes from another site's page, or asks for another host";
        return Err(Failure::new(StatusCode::FORBIDDEN, message));
    }
    if token.is_empty() || uri.path() == "/" || same(&token_of(uri, headers), token.as_bytes()) {
        return Ok(());
    }
    Err(Failure::new(StatusCode::UNAUTHORIZED, "this service wants a bearer token"))
}

/// What a host of this machine alone is called, as all the services say it.
fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.len() <= 5 && port.bytes().all(|one| one.is_ascii_digit()) => name,
        _ => host,
    };
    let loopback = |one: std::net::Ipv4Addr| one.is_loopback();
    name.eq_ignore_ascii_case("localhost") || name == "[::1]" || name.parse().is_ok_and(loopback)
}

/// The page's EventSource cannot set a header, so a token may come in the query as well. The word before it in the
/// header has no case.
fn token_of(uri: &Uri, headers: &HeaderMap) -> Vec<u8> {
    let given = text(headers, AUTHORIZATION);
    if !given.is_empty() {
        let bearer = given.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        return bearer.map_or(Vec::new(), |(_, token)| token.trim().into());
    }
    let query = uri.query().unwrap_or_default().split('&').find_map(|one| one.strip_prefix("token="));
    decoded(query.unwrap_or_default())
}

/// Undoes what is written as % and two digits.
fn decoded(text: &str) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((&first, more)) = rest.split_first() {
        let digits = more.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        match (first, digits.and_then(|two| u8::from_str_radix(two, 16).ok())) {
            (b'%', Some(byte)) => (out.push(byte), rest = &more[2..]).0,
            (b'+', _) => (out.push(b' '), rest = more).0,
            _ => (out.push(first), rest = more).0,
        }
    }
    out
}

/// Compares in a time that does not tell how much of a token was right.
fn same(given: &[u8], token: &[u8]) -> bool {
    given.len() == token.len() && given.iter().zip(token).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

async fn guard(State((manager, token)): State<(Arc<Manager>, Arc<str>)>, request: Request, next: Next) -> Response {
    if let Err(failure) = check(request.method(), request.uri(), request.headers(), &token) {
        drain(request.into_body()).await;
        return failure.into_response();
    }
    if request.uri().path().contains('%') {
        return Failure::unknown().into_response(); // nothing here has a name that must be escaped
    }
    let response = next.run(request).await;
    if response.status().is_success() {
        return response;
    }
    // Refusals name no path of this machine, and axum's own are JSON as well.
    let (mut parts, body) = response.into_parts();
    let bytes = axum::body::to_bytes(body, LARGEST_DOCUMENT).await.unwrap_or_default();
    let told = manager.told(&String::from_utf8_lossy(&bytes));
    if text(&parts.headers, CONTENT_TYPE) != "application/json" {
        return Failure::new(parts.status, told).into_response();
    }
    parts.headers.remove("content-length");
    Response::from_parts(parts, Body::from(told))
}

// --- Bodies

/// A client that is still sending reads the answer only when it has sent all.
async fn drain(body: Body) {
    let (mut pieces, mut drained) = (body.into_data_stream(), 0);
    while let Some(Ok(piece)) = pieces.next().await {
        drained += piece.len();
        if drained > MOST_DRAINED {
            return;
        }
    }
}

fn cut_off(_: axum::Error) -> Failure {
    Failure::wrong("the body was cut off")
}

/// A body of JSON. A form of another page's can say text/plain, not application/json.
async fn document(request: Request) -> Result<serde_json::Map<String, serde_json::Value>> {
    let kind = text(request.headers(), CONTENT_TYPE).split(';').next().unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case("application/json") {
        drain(request.into_body()).await;
        let message = "the body is JSON, with the header Content-Type: application/json";
        return Err(Failure::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    }
    let (mut pieces, mut bytes, mut size) = (request.into_body().into_data_stream(), Vec::new(), 0);
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(cut_off)?;
        size += piece.len();
        if size <= LARGEST_DOCUMENT {
            bytes.extend_from_slice(&piece);
        } else if size > MOST_DRAINED {
            break;
        }
    }
    if size > LARGEST_DOCUMENT {
        let message = format!("the body is too large: it may have {LARGEST_DOCUMENT} bytes");
        return Err(Failure::new(StatusCode::PAYLOAD_TOO_LARGE, message));
    }
    json::parse(&bytes)
}

async fn blocking<T: Send + 'static>(f: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(f).await.unwrap_or_else(|_| Err(Failure::ends()))
}

// --- Uploads

async fn uploads(State(manager): Shared) -> Result<Response> {
    let all = blocking(move || manager.uploads.list(|upload| manager.users(upload))).await?;
    Ok(Json(all).into_response())
}

async fn upload(State(manager): Shared, Path(name): Path<String>, request: Request) -> Result<Response> {
    let mut pieces = request.into_body().into_data_stream();
    let mut arriving = blocking(move || manager.uploads.begin(&name)).await;
    let mut drained = 0;
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(cut_off)?;
        arriving = match arriving {
            Ok(mut one) => blocking(move || one.add(&piece).map(|()| one)).await,
            failed => {
                drained += piece.len();
                if drained > MOST_DRAINED {
                    return Err(failed.err().unwrap_or_else(Failure::unknown));
                }
                failed
            }
        };
    }
    let arriving = arriving?;
    Ok(Json(blocking(move || arriving.keep()).await?).into_response())
}

async fn delete_upload(State(manager): Shared, Path(id): Path<String>) -> Result<Response> {
    Ok(Json(blocking(move || manager.delete_upload(&id)).await?).into_response())
}

// --- Jobs

async fn create(State(manager): Shared, request: Request) -> Result<Response> {
    let spec = Spec::of(&document(request).await?)?;
    let status = blocking(move || Ok(manager.create(spec)?.status())).await?;
    Ok((StatusCode::CREATED, [(LOCATION, format!("/v1/jobs/{}", status.id))], Json(status)).into_response())
}

async fn status(State(manager): Shared, Path(id): Path<String>) -> Result<Json<Status>> {
    Ok(Json(manager.job(&id)?.status()))
}

async fn delete_job(State(manager): Shared, Path(id): Path<String>) -> Result<Json<Status>> {
    let job = manager.job(&id)?;
    Ok(Json(blocking(move || manager.delete(&job)).await?))
}

async fn plan(State(manager): Shared, Path(id): Path<String>) -> Result<String> {
    let job = manager.job(&id)?;
    blocking(move || job.explain()).await
}

async fn history(State(manager): Shared, Path(id): Path<String>) -> Result<Response> {
    let history = manager.job(&id)?.history.lock().unwrap().clone();
    Ok(Json(history).into_response())
}

/// A body is read, though it says nothing: where one is left unread, the connection is not used again.
async fn phase(State(manager): Shared, Path(id): Path<String>, request: Request, phase: Phase) -> Result<Json<Status>> {
    drain(request.into_body()).await;
    let job = manager.job(&id)?;
    Ok(Json(blocking(move || job.set_phase(phase)).await?))
}

async fn checkpoint(State(manager): Shared, Path(id): Path<String>, request: Request) -> Result<Json<Status>> {
    drain(request.into_body()).await;
    let job = manager.job(&id)?;
    Ok(Json(blocking(move || job.save_now()).await?))
}

#[derive(serde::Serialize)]
struct Predicted {
    step: i64,
    outputs: BTreeMap<String, Value>,
}

async fn predict(State(manager): Shared, Path(id): Path<String>, request: Request) -> Result<Json<Predicted>> {
    let job = manager.job(&id);
    let asked = asked(&document(request).await?)?;
    let job = job?;
    let token = CancelToken::new(&manager.engine)?;
    let _stops_when_the_client_goes = token.drop_guard();
    let call = Call::new().cancel(&token);
    let (step, outputs) = blocking(move || job.predict(&asked, &call)).await?;
    Ok(Json(Predicted { step, outputs }))
}

async fn download(State(manager): Shared, Path(id): Path<String>) -> Result<Response> {
    let job = manager.job(&id)?;
    let file = blocking(move || job.export()).await?;
    let pieces = stream::unfold(Some(file), |file| async move {
        let read = tokio::task::spawn_blocking(move || {
            let mut file = file?;
            let mut piece = vec![0; 256 << 10];
            match file.read(&mut piece) {
                Ok(0) => None,
                Ok(bytes) => {
                    piece.truncate(bytes);
                    Some((Ok(piece), Some(file)))
                }
                Err(error) => Some((Err(error), None)),
            }
        });
        read.await.unwrap_or(None)
    });
    let headers = [
        ("content-type", "application/octet-stream"),
        ("content-disposition", "attachment; filename=\"trained.onnx\""),
    ];
    Ok((headers, Body::from_stream(pieces)).into_response())
}

async fn job_events(State(manager): Shared, Path(id): Path<String>) -> Result<Response> {
    let job = manager.job(&id)?;
    Ok(events(&manager, Some(job)).into_response())
}

/// The status of a job, or of all, as server-sent events: now, and after each change.
fn events(
    manager: &Arc<Manager>, job: Option<Arc<Job>>,
) -> Sse<impl Stream<Item = std::result::Result<Event, Infallible>>> {
    let watcher = manager.board.watch(job.as_ref().map(|one| one.status().id));
    let now = job.as_ref().map_or_else(|| manager.list(), |one| vec![one.status()]);
    for one in &now {
        watcher.put(one);
    }
    let (all, ending) = (job.is_none(), manager.board.ending());
    let news = stream::unfold((watcher, ending, false), move |(watcher, mut ending, over)| async move {
        if over {
            return None;
        }
        let news = tokio::select! {
            news = watcher.take() => news,
            _ = ending.wait_for(|ends| *ends) => return None,
        };
        let over = !all && news.iter().any(Status::is_over);
        // A step may take some microseconds, and there may be many jobs.
        tokio::time::sleep(Duration::from_millis(if all { 100 } else { 10 })).await;
        Some((stream::iter(news), (watcher, ending, over)))
    });
    let events = news.flatten().map(|one| {
        let event = Event::default().id(one.step.to_string()).json_data(&one).expect("a status is JSON");
        Ok(event)
    });
    Sse::new(events).keep_alive(KeepAlive::default())
}
