//! What can go wrong, and what it is by HTTP.
use axum::extract::rejection::{BytesRejection, JsonRejection};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::Json;
use epl::Code;
use std::fmt;

#[derive(Debug)]
pub enum Failure {
    /// The client asks for what does not fit: 400.
    Wrong(String),
    /// No token, or another one: 401.
    Stranger,
    /// 404.
    Unknown(String),
    /// Not now: 409.
    Conflict(String),
    /// The service ends: 503.
    Ends,
    /// A body that is not what it should be, as axum says it.
    Body(StatusCode, String),
    /// What the library says.
    Library(epl::Error),
    Io(std::io::Error),
}

pub type Result<T> = std::result::Result<T, Failure>;

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Wrong(text) | Failure::Unknown(text) | Failure::Conflict(text) => f.write_str(text),
            Failure::Body(_, text) => f.write_str(text),
            Failure::Stranger => f.write_str("this service wants a bearer token"),
            Failure::Ends => f.write_str("the service ends"),
            Failure::Library(error) => error.fmt(f),
            Failure::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Failure {}

impl From<epl::Error> for Failure {
    fn from(error: epl::Error) -> Failure {
        Failure::Library(error)
    }
}

impl From<JsonRejection> for Failure {
    fn from(error: JsonRejection) -> Failure {
        Failure::Body(error.status(), error.body_text())
    }
}

impl From<BytesRejection> for Failure {
    fn from(error: BytesRejection) -> Failure {
        Failure::Body(error.status(), error.body_text())
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        Failure::Io(error)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status = match &self {
            Failure::Wrong(_) => StatusCode::BAD_REQUEST,
            Failure::Body(status, _) => *status,
            Failure::Stranger => StatusCode::UNAUTHORIZED,
            Failure::Unknown(_) => StatusCode::NOT_FOUND,
            Failure::Conflict(_) => StatusCode::CONFLICT,
            Failure::Ends => StatusCode::SERVICE_UNAVAILABLE,
            Failure::Library(error) if error.code == Code::INVALID_ARGUMENT => StatusCode::BAD_REQUEST,
            Failure::Library(_) | Failure::Io(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        (status, Json(serde_json::json!({ "error": self.to_string() }))).into_response()
    }
}
