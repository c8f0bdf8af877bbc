//! What every handle has: it is never null, and is destroyed when it is dropped.
use crate::error::{check, Result};
use epl_sys as sys;
use std::ffi::c_char;
use std::ptr;

/// handle!(Name, epl_name, epl_name_destroy): the owner of a handle, in a struct with the documentation given.
macro_rules! handle {
    ($(#[$doc:meta])* $name:ident, $raw:ident, $destroy:ident) => {
        $(#[$doc])*
        pub struct $name(pub(crate) std::ptr::NonNull<epl_sys::$raw>);
        impl Drop for $name {
            fn drop(&mut self) {
                unsafe { epl_sys::$destroy(self.0.as_ptr()) }
            }
        }
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(stringify!($name))
            }
        }
    };
}
pub(crate) use handle;

/// A handle that a call gives: `f` writes it.
pub(crate) fn given<T>(f: impl FnOnce(*mut *mut T) -> *mut sys::epl_error) -> Result<ptr::NonNull<T>> {
    let mut place = ptr::null_mut();
    check(f(&mut place))?;
    Ok(ptr::NonNull::new(place).expect("a call that succeeds gives a handle"))
}

/// A text that a call gives.
pub(crate) fn given_text(f: impl FnOnce(*mut *mut sys::epl_text) -> *mut sys::epl_error) -> Result<String> {
    let text = given(f)?;
    let mut length = 0;
    unsafe {
        let copy = text_of(sys::epl_text_data(text.as_ptr(), &mut length), length);
        sys::epl_text_destroy(text.as_ptr());
        Ok(copy)
    }
}

/// A copy of a text of the library.
///
/// # Safety
/// `data` points to `length` bytes, or is null.
pub(crate) unsafe fn text_of(data: *const c_char, length: usize) -> String {
    if data.is_null() {
        return String::new();
    }
    String::from_utf8_lossy(std::slice::from_raw_parts(data.cast(), length)).into_owned()
}

/// A text as an argument: pointer and length.
pub(crate) fn raw(text: &str) -> (*const c_char, usize) {
    (text.as_ptr().cast(), text.len())
}

/// A path as an argument. Paths that are no UTF-8 are refused: the library's texts are UTF-8.
pub(crate) fn path_text(path: &std::path::Path) -> Result<&str> {
    path.to_str().ok_or_else(|| crate::Error::invalid(format!("the path {} is no UTF-8", path.display())))
}
