//! A training service: clients upload a model and data, start jobs, watch them by server-sent events, ask for
//! predictions while they train, pause, resume, delete, and download what was learnt.
//!
//!     service --folder DIR [--listen 127.0.0.1:8080] [--budget BYTES] [--quota BYTES] [--largest-upload BYTES]
//!             [--threads N] [--token-file FILE]
//!
//! SIGTERM ends it: every job ends the step it is in and saves. Started again, it goes on. README.md has a session by curl.
mod board;
mod failure;
mod history;
mod http;
mod job;
mod json;
mod manager;
mod spec;
mod uploads;
mod values;

use std::collections::HashMap;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{signal, SignalKind};

/// Takes what was given for an option, or the default.
fn take<T: std::str::FromStr>(given: &mut HashMap<String, String>, name: &str, default: &str) -> Result<T, String> {
    let text = given.remove(name).unwrap_or_else(|| default.into());
    text.parse().map_err(|_| match text.is_empty() {
        true => format!("--{name} is missing"),
        false => format!("--{name} {text:?} cannot be read"),
    })
}

fn run() -> Result<(), Box<dyn Error>> {
    let mut given = HashMap::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let name = argument.strip_prefix("--").ok_or_else(|| format!("{argument:?} is no option"))?;
        given.insert(name.to_string(), arguments.next().ok_or_else(|| format!("--{name} wants a value"))?);
    }
    let folder = given.remove("folder").ok_or("--folder is missing")?;
    let listen: SocketAddr = take(&mut given, "listen", "127.0.0.1:8080")?;
    let limits = uploads::Limits {
        budget: take(&mut given, "budget", "0")?,
        quota: take(&mut given, "quota", "21474836480")?,
        largest: take(&mut given, "largest-upload", "8589934592")?,
    };
    let threads = take(&mut given, "threads", "0")?;
    let token = match given.remove("token-file") {
        None => String::new(),
        Some(file) => match std::fs::read_to_string(&file).map_err(|error| format!("{file}: {error}"))?.trim() {
            "" => return Err(format!("{file} is empty").into()),
            token => token.into(),
        },
    };
    if let Some(name) = given.keys().next() {
        return Err(format!("there is no option --{name}").into());
    }
    if token.is_empty() && !listen.ip().is_loopback() {
        return Err(format!("{listen} is reached from other hosts, so clients need a token: --token-file").into());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(serve(folder, limits, threads, listen, token))
}

async fn serve(
    folder: String, limits: uploads::Limits, threads: u32, listen: SocketAddr, token: String,
) -> Result<(), Box<dyn Error>> {
    let (mut terminated, mut interrupted) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    // A door that cannot be opened is found before a job trains.
    let listener = TcpListener::bind(listen).await?;
    let manager =
        tokio::task::spawn_blocking(move || manager::Manager::open(folder.as_ref(), limits, threads)).await??;
    println!("listening on http://{}", listener.local_addr()?);
    let (router, mut ending) = (http::router(manager.clone(), token), manager.board.ending());
    let server = axum::serve(listener, router).with_graceful_shutdown(async move {
        let _ = ending.wait_for(|ends| *ends).await;
    });
    let mut server = tokio::spawn(async move { server.await });
    tokio::select! {
        ended = &mut server => ended??,
        _ = terminated.recv() => {}
        _ = interrupted.recv() => {}
    }
    // Streams of events end with the jobs; other answers have ten seconds.
    tokio::task::spawn_blocking({
        let manager = Arc::clone(&manager);
        move || manager.end()
    })
    .await?;
    if !server.is_finished() && tokio::time::timeout(Duration::from_secs(10), &mut server).await.is_err() {
        server.abort();
    }
    Ok(())
}

fn main() -> std::process::ExitCode {
    if let Err(error) = run() {
        eprintln!("the service ends: {error}");
        return std::process::ExitCode::FAILURE;
    }
    match epl::live_handles() {
        0 => std::process::ExitCode::SUCCESS,
        live => {
            eprintln!("the service ends with {live} handles of the library's alive");
            std::process::ExitCode::FAILURE
        }
    }
}
