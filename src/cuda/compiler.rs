//! NVRTC: compiles CUDA C++ at run time. It needs no device.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::PathBuf;
use std::sync::OnceLock;

use super::kernel::KernelSource;
use super::library::{NVRTC, functions};
use crate::error::{Error, Result};

type Program = *mut c_void;

functions! {
    /// The functions that are used here.
    Functions {
        version = "nvrtcVersion"(*mut c_int, *mut c_int);
        count = "nvrtcGetNumSupportedArchs"(*mut c_int);
        supported = "nvrtcGetSupportedArchs"(*mut c_int);
        create = "nvrtcCreateProgram"(
            *mut Program, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char
        );
        destroy = "nvrtcDestroyProgram"(*mut Program);
        compile = "nvrtcCompileProgram"(Program, c_int, *const *const c_char);
        log_bytes = "nvrtcGetProgramLogSize"(Program, *mut usize);
        log = "nvrtcGetProgramLog"(Program, *mut c_char);
        binary_bytes = "nvrtcGetCUBINSize"(Program, *mut usize);
        binary = "nvrtcGetCUBIN"(Program, *mut c_char);
        text_bytes = "nvrtcGetPTXSize"(Program, *mut usize);
        text = "nvrtcGetPTX"(Program, *mut c_char);
    }
}

pub(super) struct Compiler {
    pub path: PathBuf,
    functions: Functions,
}

impl Compiler {
    /// The process-wide compiler.
    pub fn get() -> Result<&'static Compiler> {
        static COMPILER: OnceLock<Result<Compiler>> = OnceLock::new();
        COMPILER.get_or_init(Compiler::find).as_ref().map_err(Clone::clone)
    }

    fn find() -> Result<Compiler> {
        let loaded = NVRTC.load()?;
        // SAFETY: the table declares the functions as NVRTC's header does, and the library is never unloaded.
        let functions = unsafe { Functions::load(loaded.library) };
        let functions = functions.map_err(|problem| NVRTC.too_old(&loaded, &problem))?;
        Ok(Compiler { path: loaded.path, functions })
    }

    pub fn version(&self) -> String {
        let (mut major, mut minor) = (0, 0);
        // SAFETY: writes two numbers.
        unsafe { (self.functions.version)(&mut major, &mut minor) };
        format!("{major}.{minor}")
    }

    /// The architectures that it supports, in ascending order.
    pub fn architectures(&self) -> Vec<u32> {
        let mut count = 0;
        // SAFETY: writes one number, then that many numbers.
        let known = unsafe {
            (self.functions.count)(&mut count);
            let mut known: Vec<c_int> = vec![0; count.max(0) as usize];
            (self.functions.supported)(known.as_mut_ptr());
            known
        };
        known.into_iter().map(|one| one as u32).collect()
    }
}

/// Compiles for an architecture (90 is "sm_90"): to machine code (CUBIN) if the compiler supports it, else to PTX for the
/// newest architecture that it supports, which the driver translates.
pub(super) fn compile(source: &KernelSource, macros: &[&str], architecture: u32) -> Result<Vec<u8>> {
    let compiler = Compiler::get()?;
    let known = compiler.architectures();
    let target = known.iter().copied().filter(|&one| one <= architecture).max();
    let target = target.ok_or_else(|| {
        let what =
            format!("NVRTC {} does not know devices of architecture {architecture}", compiler.version());
        Error::unsupported("CUDA kernel", what, "install another NVRTC, or use a newer device")
    })?;
    let exact = target == architecture;
    let kind = if exact { "sm" } else { "compute" };
    let mut options = vec![
        format!("--gpu-architecture={kind}_{target}"),
        "--std=c++17".to_string(),
        "--fmad=false".to_string(),
        "--device-as-default-execution-space".to_string(),
    ];
    options.extend(macros.iter().map(|one| format!("--define-macro={one}")));
    let program = Compilation::new(compiler, source)?;
    program.compile(source, &options)?;
    program.result(exact)
}

/// One source being compiled.
struct Compilation {
    functions: &'static Functions,
    program: Program,
}

impl Compilation {
    fn new(compiler: &'static Compiler, source: &KernelSource) -> Result<Compilation> {
        let functions = &compiler.functions;
        let (code, name) = (text(source.code)?, text(source.name)?);
        let mut program = std::ptr::null_mut();
        let none = std::ptr::null();
        // SAFETY: both strings are NUL-terminated; the compiler copies them.
        let result =
            unsafe { (functions.create)(&mut program, code.as_ptr(), name.as_ptr(), 0, none, none.cast()) };
        match result {
            0 => Ok(Compilation { functions, program }),
            code => Err(Error::internal("CUDA kernel", format!("NVRTC takes no source (error {code})"))),
        }
    }

    fn compile(&self, source: &KernelSource, options: &[String]) -> Result<()> {
        let options: Vec<CString> = options.iter().map(|option| text(option)).collect::<Result<_>>()?;
        let pointers: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        // SAFETY: as many strings as are counted, each of them NUL-terminated.
        let code =
            unsafe { (self.functions.compile)(self.program, pointers.len() as c_int, pointers.as_ptr()) };
        if code == 0 {
            return Ok(());
        }
        let log = self.read(self.functions.log_bytes, self.functions.log);
        let log = CStr::from_bytes_until_nul(&log).map(|log| log.to_string_lossy().into_owned());
        let what = format!("{} does not compile (error {code}): {}", source.name, log.unwrap_or_default());
        Err(Error::internal("CUDA kernel", what))
    }

    fn result(&self, exact: bool) -> Result<Vec<u8>> {
        let image = match exact {
            true => self.read(self.functions.binary_bytes, self.functions.binary),
            false => self.read(self.functions.text_bytes, self.functions.text),
        };
        match image.is_empty() {
            false => Ok(image),
            true => Err(Error::internal("CUDA kernel", "NVRTC gave no code")),
        }
    }

    fn read(
        &self,
        bytes: unsafe extern "C" fn(Program, *mut usize) -> c_int,
        content: unsafe extern "C" fn(Program, *mut c_char) -> c_int,
    ) -> Vec<u8> {
        let mut length = 0;
        // SAFETY: the first call returns the number of bytes that the second writes.
        unsafe {
            bytes(self.program, &mut length);
            let mut buffer = vec![0u8; length];
            content(self.program, buffer.as_mut_ptr().cast());
            buffer
        }
    }
}

impl Drop for Compilation {
    fn drop(&mut self) {
        // SAFETY: created in `new`, and not used elsewhere.
        unsafe { (self.functions.destroy)(&mut self.program) };
    }
}

fn text(text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| Error::internal("CUDA kernel", "a text with a zero in it"))
}

/// For tests of kernels without a device: compiles for an H200; without a compiler it prints so and returns false.
#[cfg(test)]
pub(crate) fn compiles(source: &KernelSource, macros: &[&str]) -> bool {
    let Ok(compiler) = Compiler::get() else {
        println!("left out: compiling {}, because NVRTC was not found", source.name);
        return false;
    };
    let known = compiler.architectures();
    let architecture = if known.contains(&90) { 90 } else { known[0] };
    let image = compile(source, macros, architecture).unwrap_or_else(|error| panic!("{error}"));
    !image.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: KernelSource = KernelSource {
        name: "good.cu",
        code: "extern \"C\" __global__ void set(float *x, float y) { x[threadIdx.x] = y; }",
    };
    const BAD: KernelSource = KernelSource { name: "bad.cu", code: "extern \"C\" __global__ void set( {" };

    #[test]
    fn mistakes_are_shown_with_their_line() {
        if compiles(&GOOD, &[]) {
            let Err(error) = compile(&BAD, &[], 90) else { panic!("it has a mistake") };
            assert!(error.to_string().contains("bad.cu(1)"), "{error}");
        }
    }

    #[test]
    fn newer_devices_get_text_for_the_driver() {
        if compiles(&GOOD, &[]) {
            let image = compile(&GOOD, &[], 999).unwrap();
            assert!(String::from_utf8_lossy(&image).contains(".visible .entry set"));
            assert!(compile(&GOOD, &[], 1).is_err());
        }
    }
}
