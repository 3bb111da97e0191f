// The parts of the look-alike and how they belong together. All of it is guarded by one mutex, `state().mutex`.
//
// A program enqueues operations in streams. One executor thread takes them from the heads of streams, in an order that
// the seed decides. A `Record` says that an operation is done, and what happened before it: streams, events, the legacy
// stream's rules and the edges of graphs are all lists of records that an operation waits for.
#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "api.h"
#include "clock.h"

namespace driver {

struct Capture;
struct Stream;

/// The end of an operation: what waits for the operation holds its record.
struct Record {
    bool done = false;
    double seconds = 0;  // when it ended
    Clock clock;         // all that happens before its end, itself included
};
using RecordPtr = std::shared_ptr<Record>;

/// A range of memory that an operation touches as a whole.
struct Access {
    CUdeviceptr address;
    size_t bytes;
    bool write;
};

enum class OpKind { kernel, copy, fill, host, marker };

/// The operation while it runs: what the checks report.
struct Running {
    Stream* stream;
    std::string name;
    Clock clock;
};

/// Work that a stream or a graph can run, perhaps many times.
struct Work {
    OpKind kind = OpKind::marker;
    std::string name;
    std::vector<Access> accesses;              // known before it runs; kernels report theirs while they run
    std::function<CUresult(Running&)> run;     // empty for a marker
    std::function<bool()> ready;               // empty: ready at once
};

/// Work in the queue of a stream.
struct Op {
    std::shared_ptr<const Work> work;
    std::vector<RecordPtr> waits;
    std::shared_ptr<const Clock> host;  // what the host has seen when it enqueued this
    RecordPtr record;
};

/// A device's primary context, the only kind there is.
struct Context {
    int device = 0;
    int retained = 0;
    CUresult sticky = CUDA_SUCCESS;  // once set, every call returns it
    std::unique_ptr<Stream> legacy;
    std::unique_ptr<Stream> per_thread;
    std::set<int> peers;  // devices whose memory it may use
    size_t used = 0;      // bytes of device memory
};

struct Stream {
    Context* context;
    size_t component;  // in clocks
    unsigned flags = 0;
    int priority = 0;
    bool branch = false;     // belongs to a graph: no rule of the legacy stream holds for it
    bool running = false;    // one of its operations runs now
    bool destroyed = false;  // deleted by the executor when its queue is empty
    std::deque<Op> queue;
    RecordPtr tail;  // of the operation enqueued last; null if none
    Clock clock;     // of the operation that ran last
    bool last_was_kernel = false;     // the operation that ran last; dependent launches need it
    std::vector<Access> last_writes;  // what that kernel wrote, with SIMT_CHECK=1

    std::shared_ptr<Capture> capture;  // null if it does not capture
    std::vector<size_t> frontier;      // the nodes that its next captured operation follows

    /// Says whether the legacy stream waits for this stream, and this stream for it.
    bool blocking() const { return !branch && !(flags & CU_STREAM_NON_BLOCKING); }
};

struct Event {
    Context* context;
    unsigned flags = 0;
    RecordPtr record;  // of the last time it was recorded; null if never
    std::weak_ptr<Capture> capture;
    bool captured = false;  // last recorded inside of a capture
    std::vector<size_t> frontier;
};

struct Node {
    std::shared_ptr<const Work> work;
    std::vector<size_t> after;
    GraphNodeType type;
};

struct Graph {
    std::vector<Node> nodes;
};

struct Capture {
    std::shared_ptr<Graph> graph = std::make_shared<Graph>();
    CaptureMode mode;
    Stream* origin;
    std::thread::id thread;
    bool invalid = false;
    std::set<Stream*> members;
};

/// All that the look-alike keeps.
struct State {
    std::mutex mutex;
    std::condition_variable work;  // the executor waits for it
    std::condition_variable done;  // host threads wait for it
    bool initialised = false;
    bool busy = false;                // an operation on memory runs
    uint64_t enqueued = 0;            // operations, since the process began
    std::string hold_behind;          // the kernel behind which streams are held
    Stream* held_stream = nullptr;    // the one that is
    bool held = false;                // nothing runs until the test lets the device go
    Stream* kernel_stream = nullptr;  // whose kernel runs now; null if none does
    std::multiset<RecordPtr> wanted;  // that host threads wait for
    int polls = 0;                    // of host threads, each of which lets one operation run
    size_t components = HOST_COMPONENT + 1;
    std::vector<std::unique_ptr<Context>> contexts;  // one per device
    std::set<Stream*> streams;
    std::set<Event*> events;
    std::set<Capture*> captures;  // those that have begun and not ended
    std::shared_ptr<const Clock> host = std::make_shared<Clock>();
};

/// Returns the only state of the process. It is never destroyed, as the executor never ends.
State& state();

/// Makes a stream of a context and registers it.
Stream* make_stream(Context& context, unsigned flags, int priority, bool branch);

/// Prints a line about a fault that the emulator found.
void complain(const char* format, ...) __attribute__((format(printf, 1, 2)));

}  // namespace driver
