//! The driver's functions, as its C header declares them, loaded once per process.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::path::PathBuf;
use std::sync::OnceLock;

use super::error::failure;
use super::library::{DRIVER, functions};
use crate::error::Result;

/// A context, a stream, an event, a module or a function of the driver.
pub(super) type Handle = *mut c_void;

/// A handle to memory that another process may open.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct IpcHandle(pub [u8; 64]);

functions! {
    /// The functions that are used here.
    Functions {
        init = "cuInit"(c_uint);
        driver_version = "cuDriverGetVersion"(*mut c_int);
        error_name = "cuGetErrorName"(c_int, *mut *const c_char);
        error_words = "cuGetErrorString"(c_int, *mut *const c_char);
        device_count = "cuDeviceGetCount"(*mut c_int);
        device_get = "cuDeviceGet"(*mut c_int, c_int);
        device_name = "cuDeviceGetName"(*mut c_char, c_int, c_int);
        device_uuid = "cuDeviceGetUuid_v2"(*mut [u8; 16], c_int);
        device_memory = "cuDeviceTotalMem_v2"(*mut usize, c_int);
        device_attribute = "cuDeviceGetAttribute"(*mut c_int, c_int, c_int);
        context_retain = "cuDevicePrimaryCtxRetain"(*mut Handle, c_int);
        context_push = "cuCtxPushCurrent_v2"(Handle);
        context_pop = "cuCtxPopCurrent_v2"(*mut Handle);
        context_peer = "cuCtxEnablePeerAccess"(Handle, c_uint);
        stream_create = "cuStreamCreateWithPriority"(*mut Handle, c_uint, c_int);
        stream_destroy = "cuStreamDestroy_v2"(Handle);
        stream_query = "cuStreamQuery"(Handle);
        stream_synchronize = "cuStreamSynchronize"(Handle);
        stream_capturing = "cuStreamIsCapturing"(Handle, *mut c_int);
        capture_mode = "cuThreadExchangeStreamCaptureMode"(*mut c_int);
        stream_wait_event = "cuStreamWaitEvent"(Handle, Handle, c_uint);
        event_create = "cuEventCreate"(*mut Handle, c_uint);
        event_record = "cuEventRecord"(Handle, Handle);
        event_query = "cuEventQuery"(Handle);
        event_destroy = "cuEventDestroy_v2"(Handle);
        memory_allocate = "cuMemAlloc_v2"(*mut u64, usize);
        memory_free = "cuMemFree_v2"(u64);
        memory_info = "cuMemGetInfo_v2"(*mut usize, *mut usize);
        memory_range = "cuMemGetAddressRange_v2"(*mut u64, *mut usize, u64);
        memory_copy = "cuMemcpyAsync"(u64, u64, usize, Handle);
        memory_set = "cuMemsetD8Async"(u64, u8, usize, Handle);
        host_allocate = "cuMemHostAlloc"(*mut *mut c_void, usize, c_uint);
        host_free = "cuMemFreeHost"(*mut c_void);
        host_register = "cuMemHostRegister_v2"(*mut c_void, usize, c_uint);
        host_unregister = "cuMemHostUnregister"(*mut c_void);
        host_address = "cuMemHostGetDevicePointer_v2"(*mut u64, *mut c_void, c_uint);
        pointer_attribute = "cuPointerGetAttribute"(*mut c_void, c_int, u64);
        ipc_export = "cuIpcGetMemHandle"(*mut IpcHandle, u64);
        ipc_open = "cuIpcOpenMemHandle_v2"(*mut u64, IpcHandle, c_uint);
        ipc_close = "cuIpcCloseMemHandle"(u64);
        module_load = "cuModuleLoadData"(*mut Handle, *const c_void);
        module_function = "cuModuleGetFunction"(*mut Handle, Handle, *const c_char);
        launch = "cuLaunchKernel"(
            Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void, *mut *mut c_void
        );
    }
}

/// An initialised driver.
pub(super) struct Driver {
    pub path: PathBuf,
    pub functions: Functions,
}

impl Driver {
    /// The process-wide driver.
    pub fn get() -> Result<&'static Driver> {
        static DRIVER: OnceLock<Result<Driver>> = OnceLock::new();
        DRIVER.get_or_init(Driver::start).as_ref().map_err(Clone::clone)
    }

    fn start() -> Result<Driver> {
        let loaded = DRIVER.load()?;
        // SAFETY: the table declares the functions as the driver's header does, and the library is never unloaded.
        let functions = unsafe { Functions::load(loaded.library) };
        let functions = functions.map_err(|problem| DRIVER.too_old(&loaded, &problem))?;
        let driver = Driver { path: loaded.path, functions };
        // SAFETY: takes flags, which must be zero.
        let code = unsafe { (driver.functions.init)(0) };
        driver.check(code, "start of CUDA", || "the driver does not start".into())?;
        Ok(driver)
    }

    /// An error unless the driver reported success.
    pub fn check(&self, code: c_int, operation: &str, what: impl FnOnce() -> String) -> Result<()> {
        if code == 0 { Ok(()) } else { Err(failure(self, code, operation, what())) }
    }

    /// The newest CUDA version that the driver supports, such as 13.0.
    pub fn version(&self) -> String {
        let mut version = 0;
        // SAFETY: writes one number.
        unsafe { (self.functions.driver_version)(&mut version) };
        format!("{}.{}", version / 1000, version % 1000 / 10)
    }
}
