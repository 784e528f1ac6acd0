// What PyTorch does not forward to a backend written in Python: whether a call is complete, who sent a message,
// sequence numbers, and the profiler's events. PyBackend wraps each Work that Python returns in one that knows only
// how to wait; here a Work is passed on as it is.

#include <pybind11/chrono.h>
#include <torch/csrc/distributed/c10d/py/PyBackend.hpp>
#include <torch/extension.h>

namespace {

using c10d::Backend;
using c10d::Work;

// The C++ half of a call; `impl` is its Python half, until the call has ended and been forgotten. Messages have futures of
// their own, which their Python half makes.
class NativeWork : public Work {
 public:
  NativeWork(
      py::object impl,
      int rank,
      int op,
      const std::string& title,
      const std::optional<std::vector<at::Tensor>>& inputs,
      uint64_t sequence,
      bool makes_future)
      : Work(rank, static_cast<c10d::OpType>(op), title.c_str(), inputs),
        impl_(std::move(impl)),
        sequence_(sequence),
        makes_future_(makes_future) {}

  ~NativeWork() override {
    py::gil_scoped_acquire gil;
    impl_ = py::object();
  }

  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override {
    if (succeeded_) {
      return true;
    }
    py::gil_scoped_acquire gil;
    return impl_.attr("wait")(timeout).cast<bool>();
  }

  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    if (makes_future_) {
      py::gil_scoped_acquire gil;
      return impl_.attr("get_future")().cast<std::shared_ptr<torch::jit::PythonFutureWrapper>>()->fut;
    }
    std::unique_lock<std::mutex> lock(mutex_);
    if (!future_) {
      future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
    }
    auto future = future_;
    lock.unlock();
    completeFuture();
    return future;
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

  // The call has ended: the profiler's event ends here. A call that has failed is asked for its error.
  void finished(bool succeeded) {
    succeeded_ = succeeded;
    finish(nullptr);
  }

  // Completes the future of a call that has ended, if there is one, and runs its callbacks; without the GIL.
  void completeFuture() {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!completed_ || !future_ || completes_) {
      return;
    }
    completes_ = true;
    lock.unlock();
    if (succeeded_) {
      future_->markCompleted(c10::IValue(result()));
    } else {
      future_->setError(exception());
    }
  }

 private:
  py::object impl_;
  uint64_t sequence_;
  bool makes_future_;
  std::atomic<bool> succeeded_{false};
  // Under `mutex_`, as PyTorch's `completed_`.
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  bool completes_{false};
};

// Calls the method of the Python subclass and returns its Work without a wrapper.
#define FORWARD(name, ...)                                              \
  do {                                                                  \
    py::gil_scoped_acquire gil;                                         \
    return method(#name)(__VA_ARGS__).cast<c10::intrusive_ptr<Work>>(); \
  } while (false)

using Tensors = std::vector<at::Tensor>;
using TensorLists = std::vector<std::vector<at::Tensor>>;
using WorkPtr = c10::intrusive_ptr<Work>;

class NativeBackend : public c10d::PyBackend {
 public:
  using PyBackend::PyBackend;

  WorkPtr broadcast(Tensors& x, const c10d::BroadcastOptions& opts) override {
    FORWARD(broadcast, x, opts);
  }
  WorkPtr allreduce(Tensors& x, const c10d::AllreduceOptions& opts) override {
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
    py::gil_scoped_acquire gil;
    return method("_get_sequence_number_for_group")().cast<uint64_t>();
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
      .def(py::init<int, int>());
  py::class_<NativeWork, Work, c10::intrusive_ptr<NativeWork>>(module, "NativeWork")
      .def(py::init<py::object, int, int, const std::string&, const std::optional<Tensors>&, uint64_t, bool>())
      .def("finished", &NativeWork::finished)
      .def("complete_future", &NativeWork::completeFuture, py::call_guard<py::gil_scoped_release>());
}
