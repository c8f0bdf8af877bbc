// What the library calls; the userdata are a hook. A part of main.rs.

unsafe fn error(code: i32, message: &str) -> *mut epl_sys::epl_error {
    epl_sys::epl_error_create(code, message.as_ptr() as *const c_char, message.len())
}

fn count(name: &str) {
    shared(|s| *s.counters.entry(name.to_string()).or_insert(0) += 1);
}

/// What it is then, after ten seconds at most.
fn await_count(name: &str, wanted: i64) -> i64 {
    let have = || shared(|s| s.counters.get(name).copied().unwrap_or(0));
    for _ in 0..10000 {
        if have() >= wanted {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    have()
}

unsafe fn answer(userdata: *mut c_void) -> *mut epl_sys::epl_error {
    let of = &*(userdata as *const Hook);
    match of.kind.as_str() {
        "fail" => return error(of.parameter.parse().unwrap(), "the host fails"),
        "count" => count(&of.parameter),
        _ => {}
    }
    std::ptr::null_mut()
}

fn layout(bytes: usize, alignment: usize) -> std::alloc::Layout {
    std::alloc::Layout::from_size_align(bytes.max(1), alignment.max(8)).unwrap()
}

unsafe extern "C" fn on_allocate(userdata: *mut c_void, bytes: usize, alignment: usize) -> *mut c_void {
    match (*(userdata as *const Hook)).kind.as_str() {
        "fail" => std::ptr::null_mut(),
        _ => std::alloc::alloc(layout(bytes, alignment)) as *mut c_void,
    }
}

unsafe extern "C" fn on_release(_userdata: *mut c_void, memory: *mut c_void, bytes: usize, alignment: usize) {
    std::alloc::dealloc(memory as *mut u8, layout(bytes, alignment));
}

unsafe extern "C" fn on_log(userdata: *mut c_void, _level: i32, _message: *const c_char, _length: usize) {
    count(&(*(userdata as *const Hook)).parameter);
}

unsafe extern "C" fn on_destroy(userdata: *mut c_void) {
    count(&(*(userdata as *const Hook)).parameter);
}

unsafe extern "C" fn on_event(userdata: *mut c_void) {
    count(&(*(userdata as *const Hook)).parameter);
}

unsafe extern "C" fn on_gone(userdata: *mut c_void) {
    count(&format!("{}.gone", (*(userdata as *const Hook)).parameter));
}

unsafe extern "C" fn on_write(userdata: *mut c_void, data: *const c_void, size: usize) -> *mut epl_sys::epl_error {
    let of = &*(userdata as *const Hook);
    if of.kind == "collect" && size > 0 {
        let more = std::slice::from_raw_parts(data as *const u8, size);
        shared(|s| s.buffers.entry(of.parameter.clone()).or_default().extend_from_slice(more));
    }
    answer(userdata)
}

unsafe extern "C" fn on_read(
    userdata: *mut c_void, offset: u64, target: *mut c_void, size: usize,
) -> *mut epl_sys::epl_error {
    let of = &*(userdata as *const Hook);
    if of.kind == "bytes" {
        let range = offset as usize..offset as usize + size;
        let part = shared(|s| s.buffers[&of.parameter].get(range).map(<[u8]>::to_vec));
        match part {
            None => return error(epl_sys::EPL_ERROR_IO, "the buffer ends before"),
            Some(part) => std::ptr::copy_nonoverlapping(part.as_ptr(), target as *mut u8, size),
        }
    }
    answer(userdata)
}

unsafe extern "C" fn on_open(
    userdata: *mut c_void, location: *const c_char, length: usize, source: *mut epl_sys::epl_source,
) -> *mut epl_sys::epl_error {
    let failed = answer(userdata);
    if !failed.is_null() {
        return failed;
    }
    let name = String::from_utf8_lossy(std::slice::from_raw_parts(location as *const u8, length)).to_string();
    let Some(size) = shared(|s| s.buffers.get(&name).map(Vec::len)) else {
        return error(epl_sys::EPL_ERROR_NOT_FOUND, "no such buffer");
    };
    (*source).bytes = size as u64;
    (*source).read = Some(on_read);
    (*source).userdata = hook(&Value::Word(format!("@bytes:{name}"))) as *mut c_void;
    std::ptr::null_mut()
}

type Operand = epl_sys::epl_op_tensor;

unsafe fn twice(from: &Operand, to: &Operand) {
    for i in 0..to.bytes as usize / 4 {
        *(to.data as *mut f32).add(i) = 2.0 * *(from.data as *const f32).add(i);
    }
}

unsafe extern "C" fn on_op_shape(
    userdata: *mut c_void, _attributes: *const c_char, _length: usize, inputs: *const Operand, _input_count: usize,
    outputs: *mut Operand, _output_count: usize,
) -> *mut epl_sys::epl_error {
    (*outputs).dtype = (*inputs).dtype;
    (*outputs).ndim = (*inputs).ndim;
    (*outputs).dims = (*inputs).dims;
    answer(userdata)
}

unsafe extern "C" fn on_op_run(
    userdata: *mut c_void, _attributes: *const c_char, _length: usize, inputs: *const Operand, _input_count: usize,
    outputs: *const Operand, _output_count: usize,
) -> *mut epl_sys::epl_error {
    let of = &*(userdata as *const Hook);
    if of.kind == "wait" {
        await_count(&of.parameter, 1);
    }
    twice(&*inputs, &*outputs);
    answer(userdata)
}

unsafe extern "C" fn on_op_gradient(
    userdata: *mut c_void, _attributes: *const c_char, _length: usize, _inputs: *const Operand, _input_count: usize,
    _outputs: *const Operand, upstream: *const Operand, _output_count: usize, gradients: *const Operand,
) -> *mut epl_sys::epl_error {
    twice(&*upstream, &*gradients);
    answer(userdata)
}

unsafe extern "C" fn on_samples(
    userdata: *mut c_void, field: i32, samples: *const i64, count: usize, target: *mut c_void, size: usize,
) -> *mut epl_sys::epl_error {
    std::ptr::write_bytes(target as *mut u8, 0, size);
    if field == 0 {
        let each = size / 4 / count;
        for i in 0..each * count {
            *(target as *mut f32).add(i) = *samples.add(i / each) as f32;
        }
    }
    answer(userdata)
}

unsafe extern "C" fn on_put(
    userdata: *mut c_void, _key: *const c_char, _length: usize, _value: *const c_void, _size: usize,
) -> *mut epl_sys::epl_error {
    answer(userdata)
}

unsafe extern "C" fn on_get(
    userdata: *mut c_void, _key: *const c_char, _length: usize, _timeout: i64, _value: *mut c_void, _capacity: usize,
    size: *mut usize,
) -> *mut epl_sys::epl_error {
    *size = 0;
    let failed = answer(userdata);
    if failed.is_null() { error(epl_sys::EPL_ERROR_DEADLINE_EXCEEDED, "nobody has put it") } else { failed }
}
