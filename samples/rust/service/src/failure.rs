//! What a client hears, and its HTTP status.
use axum::http::{header, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::Json;
use epl::Code;
use std::fmt;

#[derive(Debug)]
pub struct Failure {
    pub status: StatusCode,
    pub message: String,
}

pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    pub fn new(status: StatusCode, message: impl Into<String>) -> Failure {
        Failure { status, message: message.into() }
    }
    /// The client asks for what does not fit.
    pub fn wrong(message: impl Into<String>) -> Failure {
        Failure::new(StatusCode::BAD_REQUEST, message)
    }
    pub fn unknown() -> Failure {
        Failure::new(StatusCode::NOT_FOUND, "there is no such job or upload")
    }
    pub fn ends() -> Failure {
        Failure::new(StatusCode::SERVICE_UNAVAILABLE, "the service ends")
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

impl From<epl::Error> for Failure {
    fn from(error: epl::Error) -> Failure {
        let status = match error.code {
            Code::BUSY => StatusCode::CONFLICT,
            Code::INTERNAL | Code::IO | Code::OUT_OF_MEMORY => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::BAD_REQUEST,
        };
        Failure::new(status, error.message)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        Failure::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let body = Json(serde_json::json!({ "error": self.message }));
        match self.status {
            StatusCode::UNAUTHORIZED => (self.status, [(header::WWW_AUTHENTICATE, "Bearer")], body).into_response(),
            status => (status, body).into_response(),
        }
    }
}

/// What is not worth more room in a message.
pub fn excerpt(text: &str) -> String {
    match text.char_indices().nth(100) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.into(),
    }
}
