//! A service that fine-tunes one model for each of its users, by low-rank adapters, and answers predictions while it does.
//!
//!     adapters --model BASE.onnx --trainer TRAINER.json --folder DIR [--listen 127.0.0.1:8090] [--budget BYTES]
//!              [--seats 1] [--threads N] [--turn 50] [--token-file FILE]
//!
//! SIGTERM ends it: every seat ends the step it is in and saves. Started again, it goes on. README.md has a session by curl.
mod failure;
mod http;
mod seat;
mod tutor;
mod user;

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

fn needed(given: &mut HashMap<String, String>, name: &str) -> Result<String, String> {
    given.remove(name).ok_or_else(|| format!("--{name} is missing"))
}

fn run() -> Result<(), Box<dyn Error>> {
    let mut given = HashMap::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let name = argument.strip_prefix("--").ok_or_else(|| format!("{argument:?} is no option"))?;
        given.insert(name.to_string(), arguments.next().ok_or_else(|| format!("--{name} wants a value"))?);
    }
    let trainer = needed(&mut given, "trainer")?;
    let options = tutor::Options {
        model: needed(&mut given, "model")?.into(),
        trainer: std::fs::read_to_string(&trainer).map_err(|error| format!("{trainer}: {error}"))?,
        folder: needed(&mut given, "folder")?.into(),
        budget: take(&mut given, "budget", "0")?,
        seats: take(&mut given, "seats", "1")?,
        threads: take(&mut given, "threads", "0")?,
        turn: take(&mut given, "turn", "50")?,
    };
    let listen: SocketAddr = take(&mut given, "listen", "127.0.0.1:8090")?;
    let token = match given.remove("token-file") {
        None => None,
        Some(file) => Some(std::fs::read_to_string(&file).map_err(|error| format!("{file}: {error}"))?),
    };
    let token = token.map(|text| text.trim().to_string());
    if let Some(name) = given.keys().next() {
        return Err(format!("there is no option --{name}").into());
    }
    if token.as_ref().is_some_and(String::is_empty) {
        return Err("the file of the token is empty".into());
    }
    if token.is_none() && !listen.ip().is_loopback() {
        return Err(format!("{listen} is reached from other hosts, so clients need a token: --token-file").into());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(serve(options, listen, token))
}

async fn serve(options: tutor::Options, listen: SocketAddr, token: Option<String>) -> Result<(), Box<dyn Error>> {
    let (mut terminated, mut interrupted) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let listener = TcpListener::bind(listen).await?;
    let tutor = tokio::task::spawn_blocking(|| tutor::Tutor::open(options)).await??;
    println!("listening on http://{}", listener.local_addr()?);
    let (router, mut ending) = (http::router(tutor.clone(), token), tutor.ending());
    let server = axum::serve(listener, router).with_graceful_shutdown(async move {
        let _ = ending.wait_for(|ends| *ends).await;
    });
    let mut server = tokio::spawn(async move { server.await });
    tokio::select! {
        ended = &mut server => ended??,
        _ = terminated.recv() => {}
        _ = interrupted.recv() => {}
    }
    // Streams of events end with the tutor; other answers have ten seconds.
    tokio::task::spawn_blocking({
        let tutor = Arc::clone(&tutor);
        move || tutor.end()
    })
    .await?;
    if !server.is_finished() && tokio::time::timeout(Duration::from_secs(10), &mut server).await.is_err() {
        server.abort();
    }
    Ok(())
}

fn main() -> std::process::ExitCode {
    if let Err(error) = run() {
        eprintln!("adapters: {error}");
        return std::process::ExitCode::FAILURE;
    }
    let live = epl::live_handles();
    println!("ended with {live} handles of the library's alive");
    if live == 0 {
        std::process::ExitCode::SUCCESS
    } else {
        std::process::ExitCode::FAILURE
    }
}
