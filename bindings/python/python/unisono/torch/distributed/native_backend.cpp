// The compiled half of the backend. PyBackend wraps each Work that Python returns in one that knows only how to wait; here a Work
// is passed on as it is, with its completion, sequence number and profiler events. Frequent collectives on plain memory do not
// enter Python at all.

#include <pybind11/chrono.h>
#include <torch/csrc/distributed/c10d/py/PyBackend.hpp>
#include <torch/csrc/utils/pybind.h>

#include <array>

namespace {

using c10d::Backend;
using c10d::OpType;
using c10d::Work;

using Tensors = std::vector<at::Tensor>;
using TensorLists = std::vector<std::vector<at::Tensor>>;
using WorkPtr = c10::intrusive_ptr<Work>;
using std::chrono::milliseconds;

// The library's own interface, as call_interface.rs defines it.

struct ForeignCall {
  void (*run)(void*);
  void (*complete)(void*);
  void* context;
};

enum class Verb : uint8_t { AllReduce = 1, Broadcast = 2, AllGather = 3, ReduceScatter = 4, Barrier = 5 };

struct Collective {
  Verb verb;
  uint8_t dtype = 0;
  uint8_t operation = 0;
  uint32_t root = 0;
  const void* input = nullptr;
  void* output = nullptr;
  size_t count = 0;
  double seconds = 0;
};

enum Status : int32_t { OK = 0, FAILED = 1, TIMED_OUT = 2, INTERRUPTED = 3 };

constexpr uint64_t CLOSED = UINT64_MAX;

struct CallInterface {
  uint64_t (*submit)(const CallInterface&, ForeignCall, bool in_background);
  Status (*wait)(const CallInterface&, uint64_t number, int64_t milliseconds);
  Status (*execute)(const CallInterface&, const Collective&, char* message, size_t capacity);
  void (*restore_exception)();
};

constexpr const char* INTERFACE_NAME = "unisono._native.call_interface.1";

// Runs a function that may wait, without the GIL.
template <class F>
auto without_gil(F run) {
  std::optional<py::gil_scoped_release> released;
  if (PyGILState_Check() != 0) {
    released.emplace();
  }
  return run();
}

// A Python object that any thread may release.
std::shared_ptr<py::object> shared(py::object object) {
  return {new py::object(std::move(object)), [](py::object* held) {
            py::gil_scoped_acquire gil;
            delete held;
          }};
}

[[noreturn]] void fail(const std::string& text) {
  throw c10::DistBackendError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, "unisono: " + text);
}

// The group and the queue of one process group.
class Calls {
 public:
  explicit Calls(py::capsule capsule)
      : interface_(PyCapsule_GetPointer(capsule.ptr(), INTERFACE_NAME)), capsule_(shared(std::move(capsule))) {
    if (interface_ == nullptr) {
      throw py::error_already_set();
    }
  }

  uint64_t submit(ForeignCall call, bool in_background) const {
    return without_gil([&] { return interface().submit(interface(), call, in_background); });
  }

  void wait(uint64_t number, milliseconds limit) const {
    Status status = without_gil([&] { return interface().wait(interface(), number, limit.count()); });
    if (status == TIMED_OUT) {
      fail("Timed out waiting " + std::to_string(limit.count()) + "ms for an operation, which still runs");
    }
    if (status == INTERRUPTED) {
      raise_interrupt();
    }
  }

  void execute(const Collective& collective) const {
    std::array<char, 4096> message{};
    switch (interface().execute(interface(), collective, message.data(), message.size())) {
      case OK:
        return;
      case TIMED_OUT:
        fail("Timed out (" + std::string(message.data()) + ")");
      case INTERRUPTED:
        raise_interrupt();
      default:
        fail(message.data());
    }
  }

 private:
  const CallInterface& interface() const {
    return *static_cast<const CallInterface*>(interface_);
  }

  [[noreturn]] void raise_interrupt() const {
    py::gil_scoped_acquire gil;
    interface().restore_exception();
    throw py::error_already_set();
  }

  void* interface_;
  std::shared_ptr<py::object> capsule_;
};

// One collective call. The queue makes it, on the thread that waits for it or in the background.
class CallWork : public Work {
 public:
  CallWork(
      const std::shared_ptr<Calls>& calls,
      int rank,
      OpType op,
      const char* title,
      const Tensors& inputs,
      Tensors outputs,
      uint64_t sequence,
      std::function<void()> job)
      : Work(rank, op, title, inputs),
        calls_(calls),
        outputs_(std::move(outputs)),
        sequence_(sequence),
        job_(std::move(job)) {}

  // Submits the call, and waits for it unless it is for the background.
  void submit(const Calls& calls, bool in_background) {
    // The queue holds a reference until the call is complete.
    auto* held = c10::intrusive_ptr<CallWork>::reclaim_copy(this).release();
    number_ = calls.submit({run, complete, held}, in_background);
    if (number_ == CLOSED) {
      c10::intrusive_ptr<CallWork>::reclaim(held);
      fail("this process group was destroyed or aborted; create a new one");
    }
    if (!in_background) {
      wait();
    }
  }

  bool wait(milliseconds timeout = kNoTimeout) override {
    if (auto calls = isCompleted() ? nullptr : calls_.lock()) {
      calls->wait(number_, timeout);
    }
    if (auto error = raised_ ? raised_ : exception()) {
      std::rethrow_exception(error);
    }
    return true;
  }

  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!future_) {
      std::vector<c10::Device> devices;
      if (!outputs_.empty() && outputs_[0].is_cuda()) {
        devices.push_back(outputs_[0].device());
      }
      auto type = c10::ListType::create(c10::TensorType::get());
      future_ = c10::make_intrusive<c10::ivalue::Future>(std::move(type), std::move(devices));
    }
    auto future = future_;
    lock.unlock();
    complete_future();
    return future;
  }

  Tensors result() override {
    return outputs_;
  }

  uint64_t getSequencenumber() const override {
    return sequence_;
  }

 private:
  static void run(void* context) noexcept {
    auto* call = static_cast<CallWork*>(context);
    std::exception_ptr error;
    try {
      call->job_();
    } catch (py::error_already_set& raised) {
      call->raised_ = std::current_exception();
      py::gil_scoped_acquire gil;
      error = std::make_exception_ptr(c10::DistBackendError(
          {__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, py::str(raised.value()).cast<std::string>()));
    } catch (...) {
      error = std::current_exception();
    }
    call->finish(error);
    call->job_ = nullptr;
  }

  static void complete(void* context) noexcept {
    c10::intrusive_ptr<CallWork>::reclaim(static_cast<CallWork*>(context))->complete_future();
  }

  // Completes the future of a call that has ended, if there is one, and runs its callbacks; without the GIL.
  void complete_future() {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!completed_ || !future_ || future_is_complete_) {
      return;
    }
    future_is_complete_ = true;
    lock.unlock();
    without_gil([&] {
      if (exception_) {
        future_->setError(exception_);
      } else {
        future_->markCompleted(c10::IValue(outputs_));
      }
    });
  }

  // The job keeps them until the call has ended: a Work that is kept longer does not keep the group's memory.
  std::weak_ptr<Calls> calls_;
  Tensors outputs_;
  uint64_t sequence_;
  std::function<void()> job_;
  uint64_t number_ = 0;
  // What Python raised, if the call was made there: a wait raises the same.
  std::exception_ptr raised_;
  // Under `mutex_`, as PyTorch's `completed_`.
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  bool future_is_complete_ = false;
};

// The C++ half of a message; `impl` is its Python half.
class MessageWork : public Work {
 public:
  MessageWork(
      py::object impl,
      int rank,
      int op,
      const std::string& title,
      const std::optional<Tensors>& inputs,
      uint64_t sequence)
      : Work(rank, static_cast<OpType>(op), title.c_str(), inputs), impl_(std::move(impl)), sequence_(sequence) {}

  ~MessageWork() override {
    py::gil_scoped_acquire gil;
    impl_ = py::object();
  }

  bool wait(milliseconds timeout = kNoTimeout) override {
    py::gil_scoped_acquire gil;
    return impl_.attr("wait")(timeout).cast<bool>();
  }

  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    py::gil_scoped_acquire gil;
    return impl_.attr("get_future")().cast<std::shared_ptr<torch::jit::PythonFutureWrapper>>()->fut;
  }

  bool isCompleted() override {
    py::gil_scoped_acquire gil;
    return impl_.attr("is_completed")().cast<bool>();
  }

  bool isSuccess() const override {
    py::gil_scoped_acquire gil;
    return impl_.attr("is_success")().cast<bool>();
  }

  std::exception_ptr exception() const override {
    py::gil_scoped_acquire gil;
    py::object text = impl_.attr("error_text")();
    return text.is_none() ? nullptr
                          : std::make_exception_ptr(c10::DistBackendError(
                                {__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, text.cast<std::string>()));
  }

  int sourceRank() const override {
    py::gil_scoped_acquire gil;
    return impl_.attr("source_rank")().cast<int>();
  }

  std::vector<at::Tensor> result() override {
    py::gil_scoped_acquire gil;
    return impl_.attr("result")().cast<std::vector<at::Tensor>>();
  }

  uint64_t getSequencenumber() const override {
    return sequence_;
  }

  // The message has ended: the profiler's event ends here.
  void finished() {
    finish(nullptr);
  }

 private:
  py::object impl_;
  uint64_t sequence_;
};

// Calls the method of the Python subclass and returns its Work without a wrapper.
#define FORWARD(name, ...)                                              \
  do {                                                                  \
    py::gil_scoped_acquire gil;                                         \
    return method(#name)(__VA_ARGS__).cast<c10::intrusive_ptr<Work>>(); \
  } while (false)

// The library's number of an element type; 0 if it lacks the type.
uint8_t number_of(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return 1;
    case at::kDouble:
      return 2;
    case at::kHalf:
      return 3;
    case at::kBFloat16:
      return 4;
    case at::kChar:
      return 5;
    case at::kByte:
      return 6;
    case at::kInt:
      return 7;
    case at::kLong:
      return 8;
    default:
      return 0;
  }
}

// The library's number of a reduction of elements of this type; 0 if it lacks it.
uint8_t number_of(const c10d::ReduceOp& op, at::ScalarType dtype) {
  switch (c10d::ReduceOp::RedOpType(op)) {
    case c10d::ReduceOp::SUM:
      return 1;
    case c10d::ReduceOp::AVG:
      return at::isFloatingType(dtype) ? 2 : 0;
    case c10d::ReduceOp::PRODUCT:
      return 3;
    case c10d::ReduceOp::MIN:
      return 4;
    case c10d::ReduceOp::MAX:
      return 5;
    default:
      return 0;
  }
}

// Whether the library takes the memory of a tensor as it is.
bool is_memory(const at::Tensor& x) {
  return x.device().is_cpu() && !x.key_set().has(c10::DispatchKey::Python) && x.layout() == at::kStrided &&
      x.has_storage() && x.is_contiguous() && !x.is_neg() && !x.is_conj() && number_of(x.scalar_type()) != 0;
}

const char* start_of(const at::Tensor& x) {
  return static_cast<const char*>(x.const_data_ptr());
}

// Whether two contiguous tensors have bytes in common.
bool overlap(const at::Tensor& x, const at::Tensor& y) {
  return start_of(x) < start_of(y) + y.nbytes() && start_of(y) < start_of(x) + x.nbytes();
}

// Whether a contiguous tensor is one rank's part of another.
bool is_part(const at::Tensor& x, const at::Tensor& all, int rank) {
  return start_of(x) == start_of(all) + rank * x.nbytes();
}

// The collective that the library makes on the memory of these tensors, if it takes that as it is.
std::optional<Collective> plan(
    Verb verb,
    const at::Tensor& input,
    const at::Tensor& output,
    const c10d::ReduceOp* op = nullptr) {
  auto dtype = input.scalar_type();
  if (!is_memory(input) || !is_memory(output) || output.scalar_type() != dtype) {
    return std::nullopt;
  }
  Collective call{verb, number_of(dtype)};
  if (op != nullptr) {
    call.operation = number_of(*op, dtype);
    if (call.operation == 0) {
      return std::nullopt;
    }
  }
  call.input = input.const_data_ptr();
  call.output = output.data_ptr();
  call.count = std::min(input.numel(), output.numel());
  return call;
}

class NativeBackend : public c10d::PyBackend {
 public:
  using PyBackend::PyBackend;

  // Sets the queue, the group of which `execute` makes collectives, if there is one, the default timeout, and what the titles of
  // the profiler's events begin with.
  void connect(const std::optional<py::capsule>& interface, bool has_group, double seconds, const std::string& prefix) {
    auto calls = interface ? std::make_shared<Calls>(*interface) : nullptr;
    // The old ones are released after the lock.
    std::lock_guard<std::mutex> lock(mutex_);
    std::swap(calls_, calls);
    has_group_ = has_group;
    seconds_ = seconds;
    prefix_ = prefix + ":";
  }

  // Submits a call that is made in Python.
  WorkPtr submit(
      int op,
      const std::string& title,
      const Tensors& inputs,
      Tensors outputs,
      py::object job,
      bool in_background) {
    auto calls = connected();
    TORCH_CHECK(calls, "unisono: this process group was destroyed or aborted; create a new one");
    auto run = [calls, job = shared(std::move(job))] {
      py::gil_scoped_acquire gil;
      (*job)();
    };
    auto work = c10::make_intrusive<CallWork>(
        calls, getRank(), static_cast<OpType>(op), title.c_str(), inputs, std::move(outputs), sequence_++, run);
    work->submit(*calls, in_background);
    return work;
  }

  WorkPtr broadcast(Tensors& x, const c10d::BroadcastOptions& opts) override {
    auto call = x.size() == 1 ? plan(Verb::Broadcast, x[0], x[0]) : std::nullopt;
    if (call && opts.rootRank >= 0 && opts.rootRank < getSize()) {
      call->root = static_cast<uint32_t>(opts.rootRank);
      if (auto work = execute(*call, OpType::BROADCAST, "broadcast", x, x, opts)) {
        return work;
      }
    }
    FORWARD(broadcast, x, opts);
  }
  WorkPtr allreduce(Tensors& x, const c10d::AllreduceOptions& opts) override {
    if (auto call = x.size() == 1 ? plan(Verb::AllReduce, x[0], x[0], &opts.reduceOp) : std::nullopt) {
      if (auto work = execute(*call, OpType::ALLREDUCE, "all_reduce", x, x, opts)) {
        return work;
      }
    }
    FORWARD(allreduce, x, opts);
  }
  WorkPtr allreduce_sparse(Tensors& x, const c10d::AllreduceOptions& opts) override {
    FORWARD(allreduce_sparse, x, opts);
  }
  WorkPtr allreduce_coalesced(Tensors& x, const c10d::AllreduceCoalescedOptions& opts) override {
    FORWARD(allreduce_coalesced, x, opts);
  }
  WorkPtr reduce(Tensors& x, const c10d::ReduceOptions& opts) override {
    FORWARD(reduce, x, opts);
  }
  WorkPtr allgather(TensorLists& out, Tensors& x, const c10d::AllgatherOptions& opts) override {
    FORWARD(allgather, out, x, opts);
  }
  WorkPtr all_gather_single(at::Tensor& out, at::Tensor& x, const c10d::AllgatherOptions& opts) override {
    auto call = plan(Verb::AllGather, x, out);
    // The input may be this rank's part of the output.
    if (call && out.numel() == x.numel() * getSize() && (is_part(x, out, getRank()) || !overlap(x, out))) {
      if (auto work = execute(*call, OpType::_ALLGATHER_BASE, "_all_gather_base", {x}, {out}, opts)) {
        return work;
      }
    }
    FORWARD(all_gather_single, out, x, opts);
  }
  WorkPtr allgather_coalesced(TensorLists& out, Tensors& x, const c10d::AllgatherOptions& opts) override {
    FORWARD(allgather_coalesced, out, x, opts);
  }
  WorkPtr all_gather_single_coalesced(Tensors& out, Tensors& x, const c10d::AllgatherOptions& opts) override {
    FORWARD(all_gather_single_coalesced, out, x, opts);
  }
  WorkPtr gather(TensorLists& out, Tensors& x, const c10d::GatherOptions& opts) override {
    FORWARD(gather, out, x, opts);
  }
  WorkPtr gather_single(at::Tensor& out, at::Tensor& x, const c10d::GatherOptions& opts) override {
    FORWARD(gather_single, out, x, opts);
  }
  WorkPtr scatter(Tensors& out, TensorLists& x, const c10d::ScatterOptions& opts) override {
    FORWARD(scatter, out, x, opts);
  }
  WorkPtr reduce_scatter(Tensors& out, TensorLists& x, const c10d::ReduceScatterOptions& opts) override {
    FORWARD(reduce_scatter, out, x, opts);
  }
  WorkPtr reduce_scatter_single(at::Tensor& out, at::Tensor& x, const c10d::ReduceScatterOptions& opts) override {
    auto call = plan(Verb::ReduceScatter, x, out, &opts.reduceOp);
    if (call && x.numel() == out.numel() * getSize() && !overlap(x, out)) {
      auto op = OpType::_REDUCE_SCATTER_BASE;
      if (auto work = execute(*call, op, "_reduce_scatter_base", {x}, {out}, opts)) {
        return work;
      }
    }
    FORWARD(reduce_scatter_single, out, x, opts);
  }
  WorkPtr reduce_scatter_single_coalesced(Tensors& out, Tensors& x, const c10d::ReduceScatterOptions& opts) override {
    FORWARD(reduce_scatter_single_coalesced, out, x, opts);
  }
  WorkPtr all_to_all_single(
      at::Tensor& out,
      at::Tensor& x,
      std::vector<int64_t>& out_splits,
      std::vector<int64_t>& splits,
      const c10d::AllToAllOptions& opts) override {
    FORWARD(all_to_all_single, out, x, out_splits, splits, opts);
  }
  WorkPtr alltoall(Tensors& out, Tensors& x, const c10d::AllToAllOptions& opts) override {
    FORWARD(alltoall, out, x, opts);
  }
  WorkPtr barrier(const c10d::BarrierOptions& opts) override {
    // With a device, it also waits for the work on that device.
    if (opts.device_ids.empty() && !getBoundDeviceId()) {
      if (auto work = execute({Verb::Barrier}, OpType::BARRIER, "barrier", {}, {}, opts)) {
        return work;
      }
    }
    FORWARD(barrier, opts);
  }
  WorkPtr send(Tensors& x, int to, int tag) override {
    FORWARD(send, x, to, tag);
  }
  WorkPtr recv(Tensors& x, int source, int tag) override {
    FORWARD(recv, x, source, tag);
  }
  WorkPtr recvAnysource(Tensors& x, int tag) override {
    FORWARD(recv_anysource, x, tag);
  }

  // The Python half of the new backend is kept alive by Python.
  c10::intrusive_ptr<Backend> split(
      const c10::intrusive_ptr<c10d::Store>& store,
      const std::vector<int>& ranks,
      const c10::intrusive_ptr<Options>& opts) override {
    py::gil_scoped_acquire gil;
    py::object made = method("split")(store, ranks, opts);
    return made.is_none() ? c10::intrusive_ptr<Backend>() : made.cast<c10::intrusive_ptr<Backend>>();
  }
  void eagerConnectSingleDevice(at::Device) override {}

  // DistributedDataParallel allocates its buckets with these. It passes the index of a device; a CPU has none.
  bool supportsTensorAlloc(c10::DeviceIndex index) override {
    py::gil_scoped_acquire gil;
    return index < 0 && method("supports_tensor_alloc")(at::Device(at::kCPU)).cast<bool>();
  }
  at::Tensor allocateTensor(long size, at::TensorOptions options) override {
    py::gil_scoped_acquire gil;
    auto dtype = c10::typeMetaToScalarType(options.dtype());
    return method("allocate_tensor")(size, py::arg("dtype") = dtype, py::arg("device") = options.device())
        .cast<at::Tensor>();
  }

  // PyBackend looks these up in instances of PyTorch's own class only.
  const std::string getBackendName() const override {
    py::gil_scoped_acquire gil;
    return method("getBackendName")().cast<std::string>();
  }
  void setTimeout(std::chrono::milliseconds timeout) override {
    py::gil_scoped_acquire gil;
    method("set_timeout")(timeout);
  }
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override {
    return sequence_;
  }
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool all) override {
    py::gil_scoped_acquire gil;
    method("monitored_barrier")(opts, all);
  }
  void abort() override {
    py::gil_scoped_acquire gil;
    method("abort")();
  }
  void shutdown() override {
    py::gil_scoped_acquire gil;
    method("shutdown")();
  }

 private:
  std::shared_ptr<Calls> connected() {
    std::lock_guard<std::mutex> lock(mutex_);
    return calls_;
  }

  // Makes a collective without Python; null if the group is of several hosts, or was destroyed.
  template <class Options>
  WorkPtr execute(
      Collective call,
      OpType op,
      const char* name,
      const Tensors& inputs,
      const Tensors& outputs,
      const Options& opts) {
    std::unique_lock<std::mutex> lock(mutex_);
    auto calls = has_group_ ? calls_ : nullptr;
    auto title = prefix_ + name;
    call.seconds = opts.timeout > milliseconds(0) ? std::chrono::duration<double>(opts.timeout).count() : seconds_;
    lock.unlock();
    if (!calls) {
      return nullptr;
    }
    auto run = [calls, call, inputs, outputs] {
      calls->execute(call);
      for (const auto& written : outputs) {
        if (!written.is_inference()) {
          written.unsafeGetTensorImpl()->bump_version();
        }
      }
    };
    auto work = c10::make_intrusive<CallWork>(calls, getRank(), op, title.c_str(), inputs, outputs, sequence_++, run);
    work->submit(*calls, opts.asyncOp);
    return work;
  }

  std::mutex mutex_;
  std::shared_ptr<Calls> calls_;
  bool has_group_ = false;
  double seconds_ = 0;
  std::string prefix_;
  std::atomic<uint64_t> sequence_{0};

  py::function method(const char* name) const {
    py::function found = py::get_override(this, name);
    TORCH_CHECK(found, "unisono: the Python half of the backend is gone, or has no ", name);
    return found;
  }
};

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  py::module_::import("torch.distributed");
  py::class_<NativeBackend, Backend, c10::intrusive_ptr<NativeBackend>>(module, "NativeBackend")
      .def(py::init<int, int>())
      .def("connect", &NativeBackend::connect)
      .def("submit", &NativeBackend::submit)
      .def_property_readonly("sequence", &NativeBackend::getSequenceNumberForGroup);
  py::class_<MessageWork, Work, c10::intrusive_ptr<MessageWork>>(module, "MessageWork")
      .def(py::init<py::object, int, int, const std::string&, const std::optional<Tensors>&, uint64_t>())
      .def("finished", &MessageWork::finished);
}
