//! Finds the library: in EPL_LIB_DIR, else by pkg-config, else where linkers look by themselves.
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=EPL_LIB_DIR");
    println!("cargo:rerun-if-env-changed=PKG_CONFIG_PATH");
    println!("cargo:rerun-if-env-changed=PKG_CONFIG_LIBDIR");
    if std::env::var_os("DOCS_RS").is_some() {
        return; // documentation links nothing
    }
    let fixed = std::env::var_os("CARGO_FEATURE_STATIC").is_some();
    let name = if fixed { "libepl.a" } else { "libepl.so" };
    let Some(folder) = folder().filter(|folder| Path::new(folder).join(name).exists()) else {
        // Cargo shows what a build script that failed has said last.
        eprintln!("error: {}", missing(name));
        std::process::exit(1);
    };
    println!("cargo:rustc-link-search=native={folder}");
    // For crates that want to find it where they run: DEP_EPL_LIBDIR.
    println!("cargo:libdir={folder}");
    if fixed {
        println!("cargo:rustc-link-lib=static=epl");
        for library in ["stdc++", "z", "m"] {
            println!("cargo:rustc-link-lib=dylib={library}");
        }
    } else {
        println!("cargo:rustc-link-lib=dylib=epl");
    }
}

fn folder() -> Option<String> {
    if let Ok(folder) = std::env::var("EPL_LIB_DIR") {
        return Some(folder);
    }
    let asked = Command::new("pkg-config").args(["--variable=libdir", "epl"]).output().ok();
    let answer = asked.filter(|asked| asked.status.success()).and_then(|asked| String::from_utf8(asked.stdout).ok());
    let known = answer.map(|folder| folder.trim().to_string()).filter(|folder| !folder.is_empty());
    known.or_else(|| {
        let usual = ["/usr/local/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib"];
        usual.iter().find(|folder| Path::new(folder).join("libepl.so").exists()).map(|folder| folder.to_string())
    })
}

fn missing(name: &str) -> String {
    match std::env::var("EPL_LIB_DIR") {
        Ok(folder) => {
            format!("EPL_LIB_DIR is {folder}, where there is no {name}: set it to the folder that has {name}")
        }
        Err(_) => format!(
            "{name} is not found: install EPL (the Debian package libepl-dev, or cmake --install), so that pkg-config \
             knows it, or set EPL_LIB_DIR to the folder that has {name}"
        ),
    }
}
