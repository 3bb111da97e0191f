// The executor: one thread that runs the operations of all streams, one at a time, in an order that the seed decides.
#include "executor.h"

#include <chrono>
#include <random>

#include "capture.h"
#include "guard.h"
#include "memory.h"
#include "races.h"
#include "settings.h"

namespace driver {

namespace {

// With SIMT_LAZY=1 nothing runs before the host waits. A host that polls memory never waits, so that the executor runs
// an operation anyway after this time without one.
constexpr std::chrono::milliseconds LAZY_PATIENCE{20};

// How often the executor looks at operations that wait for a value in memory.
constexpr std::chrono::microseconds POLL_INTERVAL{200};

/// Returns the time of a clock that only rises.
double seconds_now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Says whether all that an operation waits for is done.
bool waits_done(const Op& op) {
    for (const RecordPtr& record : op.waits) {
        if (!record->done) return false;
    }
    return true;
}

/// Collects the streams whose first operation can run. Sets `polling` if one waits for a value in memory.
std::vector<Stream*> ready_streams(bool& polling) {
    std::vector<Stream*> ready;
    for (Stream* stream : state().streams) {
        if (stream == state().held_stream || stream->queue.empty() || !waits_done(stream->queue.front())) continue;
        const Work& work = *stream->queue.front().work;
        const bool failed = stream->context->sticky != CUDA_SUCCESS;
        if (work.ready && !failed && !work.ready()) {
            polling = true;
            continue;
        }
        ready.push_back(stream);
    }
    return ready;
}

/// Returns the clock of an operation that starts now.
Clock clock_of(Stream& stream, const Op& op) {
    Clock clock = stream.clock;
    for (const RecordPtr& record : op.waits) clock.join(record->clock);
    clock.join(*op.host);
    clock.advance(stream.component);
    return clock;
}

/// Returns what an operation may touch.
Rights rights_of(OpKind kind) {
    switch (kind) {
        case OpKind::host: return Rights::none;
        case OpKind::kernel: return Rights::context;
        default: return Rights::all;
    }
}

/// Runs one operation without the lock, and keeps its error in the context.
void run(Stream& stream, Op& op, std::unique_lock<std::mutex>& lock) {
    State& shared = state();
    Running running{&stream, op.work->name, clock_of(stream, op)};
    Context& context = *stream.context;
    stream.clock = running.clock;
    // A host function may tell the host, through its own memory, that the stream has come so far.
    if (op.work->kind == OpKind::host) host_saw(running.clock);
    if (op.work->run && context.sticky == CUDA_SUCCESS) {
        CUresult result = check_accesses(*op.work, context);
        // A marker that waits for a word makes an order, and does not need one.
        if (result == CUDA_SUCCESS && op.work->kind != OpKind::marker) {
            result = check_order(running, op.work->accesses);
        }
        if (result == CUDA_SUCCESS) {
            shared.busy = op.work->kind != OpKind::host;
            shared.kernel_stream = op.work->kind == OpKind::kernel ? &stream : nullptr;
            lock.unlock();
            take_rights(rights_of(op.work->kind), context);
            result = op.work->run(running);
            lock.lock();
            shared.busy = false;
            shared.kernel_stream = nullptr;
        }
        if (result != CUDA_SUCCESS && context.sticky == CUDA_SUCCESS) context.sticky = result;
    }
    if (!shared.hold_behind.empty() && op.work->name == shared.hold_behind) shared.held_stream = &stream;
    stream.clock = running.clock;
    stream.last_was_kernel = op.work->kind == OpKind::kernel;
    if (!stream.last_was_kernel) stream.last_writes.clear();
    op.record->clock = running.clock;
    op.record->seconds = seconds_now();
    op.record->done = true;
    shared.done.notify_all();
}

/// Deletes a stream that was destroyed, once all its work is done.
void bury(Stream* stream) {
    if (!stream->destroyed || !stream->queue.empty()) return;
    state().streams.erase(stream);
    delete stream;
}

/// Says whether a host thread waits for something that is not done.
bool host_waits() {
    if (state().polls > 0) return true;
    for (const RecordPtr& record : state().wanted) {
        if (!record->done) return true;
    }
    return false;
}

/// Runs operations for ever.
void execute() {
    State& shared = state();
    std::mt19937 random(settings().seed);
    std::unique_lock<std::mutex> lock(shared.mutex);
    for (;;) {
        if (settings().lazy && !host_waits()) {
            if (shared.work.wait_for(lock, LAZY_PATIENCE) == std::cv_status::no_timeout) continue;
        }
        if (shared.held) {
            shared.work.wait(lock);
            continue;
        }
        bool polling = false;
        const std::vector<Stream*> ready = ready_streams(polling);
        if (shared.polls > 0) shared.polls--;
        if (ready.empty()) {
            shared.done.notify_all();
            if (polling) {
                shared.work.wait_for(lock, POLL_INTERVAL);
            } else {
                shared.work.wait(lock);
            }
            continue;
        }
        Stream* stream = ready[random() % ready.size()];
        Op op = std::move(stream->queue.front());
        stream->queue.pop_front();
        stream->running = true;
        run(*stream, op, lock);
        stream->running = false;
        bury(stream);
    }
}

/// Returns the records of the other streams that an operation has to follow, by the rules of the legacy stream.
void add_legacy_rules(Stream& stream, std::vector<RecordPtr>& waits) {
    if (stream.branch) return;
    Context& context = *stream.context;
    if (&stream == context.legacy.get()) {
        for (Stream* other : state().streams) {
            if (other->context == &context && other != &stream && other->blocking() && other->tail) {
                waits.push_back(other->tail);
            }
        }
    } else if (stream.blocking() && context.legacy->tail) {
        waits.push_back(context.legacy->tail);
    }
}

}  // namespace

void start_executor() {
    std::thread(execute).detach();
}

RecordPtr append(Stream& stream, std::shared_ptr<const Work> work, std::vector<RecordPtr> waits) {
    add_legacy_rules(stream, waits);
    RecordPtr record = std::make_shared<Record>();
    stream.queue.push_back(Op{std::move(work), std::move(waits), state().host, record});
    stream.tail = record;
    state().enqueued++;
    state().work.notify_one();
    return record;
}

CUresult enqueue(Stream& stream, Work work, GraphNodeType type) {
    if (stream.capture) return add_node(stream, std::move(work), type);
    if (CUresult error = check_implicit(stream)) return error;
    append(stream, std::make_shared<Work>(std::move(work)), {});
    return CUDA_SUCCESS;
}

void host_saw(const Clock& clock) {
    auto seen = std::make_shared<Clock>(*state().host);
    seen->join(clock);
    state().host = std::move(seen);
}

void wait_for(const std::vector<RecordPtr>& records, std::unique_lock<std::mutex>& lock) {
    State& shared = state();
    shared.wanted.insert(records.begin(), records.end());
    shared.work.notify_one();
    for (const RecordPtr& record : records) {
        shared.done.wait(lock, [&] { return record->done; });
        host_saw(record->clock);
        shared.wanted.erase(shared.wanted.find(record));
    }
}

bool poll(const RecordPtr& record, std::unique_lock<std::mutex>& lock) {
    if (!record) return true;
    State& shared = state();
    if (!record->done && settings().lazy) {
        shared.polls++;  // for one operation, if one is ready
        shared.work.notify_one();
        shared.done.wait(lock);
    }
    if (record->done) host_saw(record->clock);
    return record->done;
}

std::vector<RecordPtr> records_of(Stream& stream) {
    std::vector<RecordPtr> records;
    if (stream.tail) records.push_back(stream.tail);
    if (&stream == stream.context->legacy.get()) add_legacy_rules(stream, records);
    return records;
}

void wait_until_idle(std::unique_lock<std::mutex>& lock) {
    state().done.wait(lock, [] { return !state().busy; });
}

void drain(Context& context, std::unique_lock<std::mutex>& lock) {
    std::vector<RecordPtr> records;
    for (Stream* stream : state().streams) {
        if (stream->context == &context && stream->tail) records.push_back(stream->tail);
    }
    wait_for(records, lock);
}

}  // namespace driver

/// Holds the device: nothing more runs until it is let go. Host code that waits for work then waits for that, too.
API void simt_hold(int held) {
    const std::lock_guard lock(driver::state().mutex);
    driver::state().held = held != 0;
    driver::state().work.notify_all();
}

/// Returns how many operations were enqueued in this process, those of graphs included.
API unsigned long long simt_enqueued() {
    const std::lock_guard lock(driver::state().mutex);
    return driver::state().enqueued;
}

/// From now on a stream is held behind each launch of a kernel there; null: behind none, and the held one goes on.
API void simt_hold_behind(const char* kernel) {
    const std::lock_guard lock(driver::state().mutex);
    driver::state().hold_behind = kernel ? std::string("kernel ") + kernel : "";
    driver::state().held_stream = nullptr;
    driver::state().work.notify_all();
}

/// Returns whether a stream is held behind a kernel.
API int simt_is_held() {
    const std::lock_guard lock(driver::state().mutex);
    return driver::state().held_stream != nullptr;
}

/// Lets the held stream go on, until the kernel's next launch.
API void simt_go_on() {
    const std::lock_guard lock(driver::state().mutex);
    driver::state().held_stream = nullptr;
    driver::state().work.notify_all();
}
