//! The interpreter of scripts for Rust: tests/conformance/README.md says what a line means. Calls are those of epl-sys,
//! by dispatch.rs, which cmake/interface writes. Memory that scripts make is kept until the end.
#![allow(non_upper_case_globals, unused_mut)]

use std::collections::HashMap;
use std::ffi::{c_char, c_void};
use std::io::Write;
use std::sync::Mutex;

include!(env!("EPL_DISPATCH"));
include!("callbacks.rs");

#[derive(Clone)]
enum Value {
    Word(String),
    Text(Vec<u8>),
    List(Vec<Value>),
    Struct(Vec<Value>),
}

impl Value {
    fn word(&self) -> &str {
        match self {
            Value::Word(word) => word,
            _ => "",
        }
    }

    fn name(&self) -> String {
        match self {
            Value::Text(text) => String::from_utf8(text.clone()).unwrap(),
            _ => self.word().to_string(),
        }
    }

    fn is_null(&self) -> bool {
        self.word() == "NULL"
    }

    fn items(&self) -> &[Value] {
        match self {
            Value::List(items) | Value::Struct(items) => items,
            _ => &[],
        }
    }
}

struct Hook {
    kind: String,
    parameter: String,
}

/// What callbacks change.
struct Shared {
    buffers: HashMap<String, Vec<u8>>,
    counters: HashMap<String, i64>,
}

static SHARED: Mutex<Option<Shared>> = Mutex::new(None);

fn shared<R>(with: impl FnOnce(&mut Shared) -> R) -> R {
    let mut guard = SHARED.lock().unwrap();
    with(guard.get_or_insert_with(|| Shared { buffers: HashMap::new(), counters: HashMap::new() }))
}

pub struct FieldInfo {
    name: &'static str,
    /// i, I (32 and 64 bits), u, d, t (text), h (handle), g (a group of callbacks)
    kind: char,
    offset: usize,
    /// Of a text's length, or of a group's destructor; 0 for none.
    other: usize,
    array: usize,
    hidden: bool,
}

pub struct CallbackInfo {
    group: &'static str,
    offset: usize,
    function: fn() -> *const (),
}

pub struct StructInfo {
    size: usize,
    sized: bool,
    fields: &'static [FieldInfo],
    callbacks: &'static [CallbackInfo],
}

struct Span {
    data: *mut c_void,
    size: usize,
}

const NOTHING: Span = Span { data: std::ptr::null_mut(), size: 0 };

/// Kept until the end, with room for alignment and at least one byte.
fn keep(data: &[u8]) -> Span {
    let mut words = vec![0u64; data.len() / 8 + 1].into_boxed_slice();
    let at = words.as_mut_ptr() as *mut u8;
    std::mem::forget(words);
    unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), at, data.len()) };
    Span { data: at as *mut c_void, size: data.len() }
}

type Variables = HashMap<String, *mut c_void>;

pub struct Call<'a> {
    arguments: &'a [Value],
    next: usize,
    targets: Vec<String>,
    quiet: bool,
    variables: &'a mut Variables,
    line: String,
}

fn integer(value: &Value) -> i64 {
    let word = value.word();
    match CONSTANTS.iter().find(|(name, _)| *name == word) {
        Some((_, number)) => *number,
        None => word.parse::<i64>().unwrap_or_else(|_| word.parse::<u64>().expect(word) as i64),
    }
}

fn bytes(value: &Value) -> Option<Vec<u8>> {
    if let Value::Text(text) = value {
        return Some(text.clone());
    }
    if value.is_null() {
        return None;
    }
    let word = value.word();
    let Some((kind, rest)) = word.split_once(':') else {
        return Some(shared(|s| s.buffers[word].clone()));
    };
    let numbers = rest.split(',').filter(|n| !n.is_empty());
    Some(match kind {
        "zeros" => vec![0; rest.parse().unwrap()],
        "f32" => numbers.flat_map(|n| n.parse::<f32>().unwrap().to_ne_bytes()).collect(),
        "i64" => numbers.flat_map(|n| n.parse::<i64>().unwrap().to_ne_bytes()).collect(),
        _ => panic!("{word} is no memory"),
    })
}

fn kept(value: &Value) -> Span {
    bytes(value).map_or(NOTHING, |data| keep(&data))
}

fn hook(value: &Value) -> *mut Hook {
    if value.is_null() {
        return std::ptr::null_mut();
    }
    let (kind, parameter) = value.word()[1..].split_once(':').unwrap_or((&value.word()[1..], ""));
    Box::into_raw(Box::new(Hook { kind: kind.to_string(), parameter: parameter.to_string() }))
}

fn number_text(number: f64) -> String {
    if number.is_nan() {
        "nan".to_string()
    } else if number.abs() > 1e14 {
        if number > 0.0 { "large" } else { "-large" }.to_string()
    } else {
        format!("{}e-4", (number * 1e4 + 0.5).floor() as i64)
    }
}

fn quoted(data: &[u8]) -> String {
    let mut text = String::from("\"");
    for &b in data {
        if (0x20..=0x7e).contains(&b) && b != b'"' && b != b'\\' {
            text.push(b as char);
        } else {
            text.push_str(&format!("\\x{b:02x}"));
        }
    }
    text + "\""
}

impl Call<'_> {
    fn take(&mut self) -> Value {
        self.next += 1;
        self.arguments[self.next - 1].clone()
    }

    fn lookup(&self, value: &Value) -> *mut c_void {
        if value.is_null() {
            return std::ptr::null_mut();
        }
        *self.variables.get(value.word()).unwrap_or_else(|| panic!("{} is no handle", value.word()))
    }

    fn take_handle(&mut self) -> *mut c_void {
        let value = self.take();
        self.lookup(&value)
    }

    fn take_handles(&mut self) -> Span {
        let value = self.take();
        if value.is_null() {
            return NOTHING;
        }
        let handles: Vec<u8> =
            value.items().iter().flat_map(|item| (self.lookup(item) as usize).to_ne_bytes()).collect();
        Span { size: value.items().len(), ..keep(&handles) }
    }

    fn take_integers(&mut self) -> Span {
        let value = self.take();
        if value.is_null() {
            return NOTHING;
        }
        let numbers: Vec<u8> = value.items().iter().flat_map(|item| integer(item).to_ne_bytes()).collect();
        Span { size: value.items().len(), ..keep(&numbers) }
    }

    fn take_bytes(&mut self) -> Span {
        kept(&self.take())
    }

    fn take_integer(&mut self) -> i64 {
        integer(&self.take())
    }

    fn take_number(&mut self) -> f64 {
        self.take().word().parse().unwrap()
    }

    fn take_hook(&mut self) -> *mut Hook {
        hook(&self.take())
    }

    fn filled(&self, value: &Value, info: &StructInfo) -> Vec<u8> {
        let mut memory = vec![0u8; info.size];
        let mut put = |at: usize, data: &[u8]| memory[at..at + data.len()].copy_from_slice(data);
        if info.sized {
            put(0, &(info.size as u64).to_ne_bytes());
        }
        for pair in value.items().chunks(2) {
            let field = info.fields.iter().find(|f| f.name == pair[0].word()).expect("a field");
            let of = &pair[1];
            match field.kind {
                'd' => put(field.offset, &of.word().parse::<f64>().unwrap().to_ne_bytes()),
                'h' => put(field.offset, &(self.lookup(of) as usize).to_ne_bytes()),
                't' => {
                    let text = kept(of);
                    put(field.offset, &(text.data as usize).to_ne_bytes());
                    put(field.other, &(text.size as u64).to_ne_bytes());
                }
                'g' if of.is_null() => {}
                'g' => {
                    put(field.offset, &(hook(of) as usize).to_ne_bytes());
                    for callback in info.callbacks.iter().filter(|c| c.group == field.name) {
                        put(callback.offset, &((callback.function)() as usize).to_ne_bytes());
                    }
                    if field.other != 0 {
                        put(field.other, &(on_gone as *const () as usize).to_ne_bytes());
                    }
                }
                _ => {
                    let items = if field.array == 0 { std::slice::from_ref(of) } else { of.items() };
                    for (i, item) in items.iter().enumerate() {
                        match field.kind {
                            'i' => put(field.offset + 4 * i, &(integer(item) as i32).to_ne_bytes()),
                            _ => put(field.offset + 8 * i, &integer(item).to_ne_bytes()),
                        }
                    }
                }
            }
        }
        memory
    }

    fn take_struct(&mut self, info: &StructInfo) -> *mut c_void {
        let value = self.take();
        if value.is_null() {
            return std::ptr::null_mut();
        }
        keep(&self.filled(&value, info)).data
    }

    fn take_structs(&mut self, info: &StructInfo) -> Span {
        let value = self.take();
        if value.is_null() {
            return NOTHING;
        }
        let all: Vec<u8> = value.items().iter().flat_map(|item| self.filled(item, info)).collect();
        Span { size: value.items().len(), ..keep(&all) }
    }

    fn targets_left(&self) -> usize {
        self.targets.len()
    }

    fn give(&mut self, text: &str) {
        self.line.push(' ');
        self.line.push_str(text);
    }

    fn give_value(&mut self, text: &str, some: bool) {
        let quiet = if some { "some" } else { "none" };
        self.give(if self.quiet { quiet } else { text });
    }

    fn give_integer(&mut self, number: i64) {
        self.give_value(&number.to_string(), number != 0);
    }

    fn give_unsigned(&mut self, number: u64) {
        self.give_value(&number.to_string(), number != 0);
    }

    fn give_number(&mut self, number: f64) {
        self.give_value(&number_text(number), number != 0.0);
    }

    fn give_handle(&mut self, handle: *const c_void) {
        let name = self.targets.remove(0);
        self.give(if handle.is_null() { "NULL" } else { &name });
        self.variables.insert(name, handle as *mut c_void);
    }

    unsafe fn give_text(&mut self, data: *const u8, size: usize) {
        let text = if size == 0 { &[] } else { std::slice::from_raw_parts(data, size) };
        self.give_value(&quoted(text), size != 0);
    }

    unsafe fn give_owned_text(&mut self, text: *mut epl_sys::epl_text) {
        let mut size = 0;
        let data = epl_sys::epl_text_data(text, &mut size);
        self.give_text(data as *const u8, size);
        epl_sys::epl_text_destroy(text);
    }

    unsafe fn give_error(&mut self, error: *mut epl_sys::epl_error) -> bool {
        if error.is_null() {
            self.give("ok");
            return false;
        }
        let code = epl_sys::epl_error_code(error);
        let name = std::ffi::CStr::from_ptr(epl_sys::epl_error_code_name(code)).to_str().unwrap();
        self.give(&format!("error {code} {name}"));
        if !self.quiet {
            let mut size = 0;
            let data = epl_sys::epl_error_message(error, &mut size);
            self.give_text(data as *const u8, size);
            let data = epl_sys::epl_error_where(error, &mut size);
            self.give_text(data as *const u8, size);
            self.give(&format!("{} {}", epl_sys::epl_error_rank(error), epl_sys::epl_error_retryable(error)));
        }
        epl_sys::epl_error_destroy(error);
        for name in std::mem::take(&mut self.targets) {
            self.variables.insert(name, std::ptr::null_mut());
        }
        true
    }

    unsafe fn give_struct(&mut self, memory: *const u8, info: &StructInfo) {
        let mut parts = Vec::new();
        for field in info.fields {
            let at = memory.add(field.offset);
            let long = |i: usize| (at as *const i64).add(i).read_unaligned();
            let text = match field.kind {
                _ if field.hidden => "*".to_string(),
                't' if (at as *const usize).read_unaligned() == 0 => quoted(&[]),
                't' => {
                    let size = (memory.add(field.other) as *const u64).read_unaligned() as usize;
                    quoted(std::slice::from_raw_parts((at as *const *const u8).read_unaligned(), size))
                }
                'd' => number_text((at as *const f64).read_unaligned()),
                'i' => (at as *const i32).read_unaligned().to_string(),
                'u' => (long(0) as u64).to_string(),
                'I' if field.array == 0 => long(0).to_string(),
                'I' => {
                    let mut items: Vec<i64> = (0..field.array).map(long).collect();
                    while items.last() == Some(&0) {
                        items.pop();
                    }
                    format!("[{}]", items.iter().map(i64::to_string).collect::<Vec<_>>().join(","))
                }
                _ => continue,
            };
            parts.push(format!("{}={}", field.name, text));
        }
        self.give_value(&format!("{{{}}}", parts.join(" ")), true);
    }

    unsafe fn give_memory(&mut self, data: *const u8, tensor: *const epl_sys::epl_tensor) {
        if self.quiet || data.is_null() {
            self.give_value("NULL", !data.is_null());
            return;
        }
        let size = epl_sys::epl_tensor_bytes(tensor);
        let all = std::slice::from_raw_parts(data, size);
        if epl_sys::epl_tensor_dtype(tensor) == epl_sys::EPL_DTYPE_F32 {
            for four in all.chunks(4) {
                self.give(&number_text(f32::from_ne_bytes(four.try_into().unwrap()) as f64));
            }
        } else {
            let text: String = all.iter().map(|b| format!("{b:02x}")).collect();
            self.give(&text);
        }
    }
}

// --- Lines

fn parsed(text: &[u8], at: &mut usize) -> Option<Value> {
    while *at < text.len() && text[*at].is_ascii_whitespace() {
        *at += 1;
    }
    let first = *text.get(*at)?;
    *at += 1;
    if first == b'[' || first == b'{' {
        let mut items = Vec::new();
        loop {
            match parsed(text, at)? {
                Value::Word(end) if end == "]" || end == "}" => break,
                item => items.push(item),
            }
        }
        return Some(if first == b'[' { Value::List(items) } else { Value::Struct(items) });
    }
    if first == b']' || first == b'}' {
        return Some(Value::Word((first as char).to_string()));
    }
    if first != b'"' {
        let begin = *at - 1;
        while *at < text.len() && !text[*at].is_ascii_whitespace() && !b"[]{}".contains(&text[*at]) {
            *at += 1;
        }
        return Some(Value::Word(String::from_utf8(text[begin..*at].to_vec()).unwrap()));
    }
    let mut bytes = Vec::new();
    while text[*at] != b'"' {
        let mut b = text[*at];
        if b == b'\\' {
            *at += 1;
            b = match text[*at] {
                b'n' => b'\n',
                b'x' => {
                    *at += 2;
                    u8::from_str_radix(std::str::from_utf8(&text[*at - 1..=*at]).unwrap(), 16).unwrap()
                }
                other => other,
            };
        }
        bytes.push(b);
        *at += 1;
    }
    *at += 1;
    Some(Value::Text(bytes))
}

fn command(name: &str, v: &[Value]) -> Option<String> {
    let first = v.first()?.name();
    match name {
        "buffer" => {
            let data = bytes(&v[1]).unwrap();
            shared(|s| s.buffers.insert(first.clone(), data));
        }
        "read" => {
            let data = std::fs::read(v[1].name()).unwrap();
            shared(|s| s.buffers.insert(first.clone(), data));
        }
        "cut" => shared(|s| s.buffers.get_mut(&first).unwrap().truncate(integer(&v[1]) as usize)),
        "write" => std::fs::write(&first, bytes(&v[1]).unwrap()).unwrap(),
        "signal" => count(&first),
        "await" => return Some(format!("await: {first} {}", await_count(&first, integer(&v[1])))),
        _ => return None,
    }
    Some(format!("{name}: {first}"))
}

fn main() {
    let script = std::fs::read(std::env::args().nth(1).unwrap()).unwrap();
    let mut variables = Variables::new();
    for text in script.split(|b| *b == b'\n') {
        let mut at = 0;
        let mut words: Vec<Value> = std::iter::from_fn(|| parsed(text, &mut at)).collect();
        if words.is_empty() || words[0].word().starts_with('#') {
            continue;
        }
        let quiet = words[0].word() == "~";
        if quiet {
            words.remove(0);
        }
        let name = words.remove(0).name();
        let arrow = words.iter().position(|w| w.word() == "->").unwrap_or(words.len());
        if let Some(done) = command(&name, &words) {
            println!("{done}");
            continue;
        }
        let run = FUNCTIONS.iter().find(|(f, _)| *f == name).unwrap_or_else(|| panic!("no function {name}")).1;
        let targets = words[arrow..].iter().skip(1).map(Value::name).collect();
        let mut call = Call {
            arguments: &words[..arrow], next: 0, targets, quiet, variables: &mut variables, line: name.clone() + ":",
        };
        unsafe { run(&mut call) };
        assert!(call.next == arrow, "{name} has other arguments");
        println!("{}", call.line);
        std::io::stdout().flush().unwrap();
        if name.ends_with("_destroy") && !words[0].is_null() {
            variables.insert(words[0].name(), std::ptr::null_mut());
        }
    }
}
