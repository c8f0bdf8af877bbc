//! Finds the library: in EPL_LIB_DIR, else by pkg-config.
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=EPL_LIB_DIR");
    println!("cargo:rerun-if-env-changed=PKG_CONFIG_PATH");
    let fixed = std::env::var("EPL_LIB_DIR").ok();
    let folder = fixed.or_else(|| {
        let asked = Command::new("pkg-config").args(["--variable=libdir", "epl"]).output().ok()?;
        let folder = String::from_utf8(asked.stdout).ok()?;
        (asked.status.success() && !folder.trim().is_empty()).then(|| folder.trim().to_string())
    });
    if let Some(folder) = &folder {
        println!("cargo:rustc-link-search=native={folder}");
        // For crates that want to find it where they run: DEP_EPL_LIBDIR.
        println!("cargo:libdir={folder}");
    } else {
        println!(
            "cargo:warning=pkg-config does not know epl and EPL_LIB_DIR is not set, so libepl must be where the linker \
             looks by itself"
        );
    }
    if std::env::var_os("CARGO_FEATURE_STATIC").is_some() {
        println!("cargo:rustc-link-lib=static=epl");
        for library in ["stdc++", "z", "m"] {
            println!("cargo:rustc-link-lib=dylib={library}");
        }
    } else {
        println!("cargo:rustc-link-lib=dylib=epl");
    }
}
