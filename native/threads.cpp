#include "threads.h"

#include <algorithm>
#include <atomic>
#include <cfenv>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#if !defined(_WIN32)
#include <pthread.h>
#endif

namespace poolgrad {

namespace {

// Round to nearest, subnormals kept, whatever the caller had; the caller's own mode comes back at the end.
class PlainArithmetic {
public:
    PlainArithmetic() { std::fegetenv(&old_); std::fesetenv(FE_DFL_ENV); }
    ~PlainArithmetic() { std::fesetenv(&old_); }
    PlainArithmetic(const PlainArithmetic&) = delete;
    PlainArithmetic& operator=(const PlainArithmetic&) = delete;
private:
    std::fenv_t old_;
};

constexpr size_t KEPT_SCRATCH = 8 << 20;

class Scratch {
public:
    char* get(size_t bytes) {
        if (bytes > size_) {
            release();
            data_ = static_cast<char*>(::operator new(bytes, std::align_val_t(64)));
            std::memset(data_, 0, bytes);
            size_ = bytes;
        }
        return data_;
    }
    void shrink() { if (size_ > KEPT_SCRATCH) release(); }
    ~Scratch() { release(); }
    Scratch() = default;
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
private:
    void release() { if (data_) ::operator delete(data_, std::align_val_t(64)); data_ = nullptr; size_ = 0; }
    char* data_ = nullptr;
    size_t size_ = 0;
};

// Waking a sleeping thread takes longer than many calls: look for a while before going to sleep.
template <class Ready> void spin(Ready ready) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(50);
    while (!ready() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
}

// Tasks [next, end), which the threads take in runs.
struct Part {
    alignas(64) std::atomic<int64_t> next;
    int64_t end;
};

// Every thread has its own part of the tasks, the same in every call that is like this one: what it touched in the call before may still
// lie in its own cache. Tasks that follow each other use each other's memory: a thread takes a run of them, shorter towards the end of the
// part, and then helps with the parts of the others.
class Job {
public:
    Job(TaskFunction function, const void* context, int64_t count, int64_t threads)
        : function_(function), context_(context), parts_(size_t(threads)) {
        for (int64_t k = 0; k < threads; ++k) {
            parts_[size_t(k)].next = count / threads * k + std::min(k, count % threads);
            parts_[size_t(k)].end = count / threads * (k + 1) + std::min(k + 1, count % threads);
        }
    }

    void work(size_t thread, char* scratch) {
        for (size_t k = 0; k < parts_.size(); ++k) finish(parts_[(thread + k) % parts_.size()], scratch);
    }

private:
    void finish(Part& part, char* scratch) {
        for (int64_t task = part.next; task < part.end;) {
            const int64_t run = std::max<int64_t>(1, (part.end - task) / 4);
            if (!part.next.compare_exchange_weak(task, task + run, std::memory_order_relaxed)) continue;
            function_(context_, task, task + run, scratch);
            task = part.next;
        }
    }

    TaskFunction function_;
    const void* context_;
    std::vector<Part> parts_;
};

class Pool {
public:
    std::mutex busy;

    void run(Job& job, int64_t threads, size_t scratch) {
        const size_t helpers = size_t(threads - 1);
        while (scratch_.size() <= helpers) scratch_.push_back(std::make_unique<Scratch>());
        for (size_t k = 0; k <= helpers; ++k) scratch_[k]->get(scratch);
        {
            std::unique_lock<std::mutex> lock(mutex_);
            while (workers_.size() < helpers) {
                const size_t index = workers_.size() + 1;
                workers_.emplace_back([this, index] { serve(index); });
            }
            job_ = &job;
            wanted_ = helpers;
            running_ = helpers;
            ++turn_;
        }
        wake_.notify_all();
        job.work(0, scratch_[0]->get(scratch));
        spin([this] { return running_ == 0; });
        {
            std::unique_lock<std::mutex> lock(mutex_);
            done_.wait(lock, [this] { return running_ == 0; });
            job_ = nullptr;
        }
        for (auto& s : scratch_) s->shrink();
    }

    ~Pool() {
        {
            std::unique_lock<std::mutex> lock(mutex_);
            stop_ = true;
        }
        wake_.notify_all();
        for (auto& w : workers_) w.join();
    }

private:
    void serve(size_t index) {
        PlainArithmetic plain;
        std::unique_lock<std::mutex> lock(mutex_);
        for (uint64_t seen = 0;;) {
            lock.unlock();
            spin([&] { return turn_ != seen; });
            lock.lock();
            wake_.wait(lock, [&] { return stop_ || (turn_ != seen && index <= wanted_); });
            if (stop_) return;
            seen = turn_;
            Job* job = job_;
            char* scratch = scratch_[index]->get(0);
            lock.unlock();
            job->work(index, scratch);
            lock.lock();
            if (--running_ == 0) done_.notify_one();
        }
    }

    std::mutex mutex_;
    std::condition_variable wake_, done_;
    std::vector<std::thread> workers_;
    std::vector<std::unique_ptr<Scratch>> scratch_;
    Job* job_ = nullptr;
    size_t wanted_ = 0;
    std::atomic<size_t> running_{0};
    std::atomic<uint64_t> turn_{0};
    bool stop_ = false;
};

// A forked child has the parent's pool but none of its threads: it leaves that one be and starts its own.
std::atomic<Pool*> the_pool{nullptr};
std::mutex* making = new std::mutex;

#if !defined(_WIN32)
void forget_pool() {
    the_pool.store(nullptr);
    making = new std::mutex;
}
#endif

Pool& pool() {
    if (Pool* p = the_pool.load()) return *p;
    std::lock_guard<std::mutex> lock(*making);
    if (Pool* p = the_pool.load()) return *p;
#if !defined(_WIN32)
    static const int registered = pthread_atfork(nullptr, nullptr, forget_pool);
    (void)registered;
#endif
    Pool* p = new Pool;
    the_pool.store(p);
    return *p;
}

}  // namespace

void run_tasks(TaskFunction function, const void* context, int64_t count, int64_t threads, size_t scratch) {
    threads = std::min(threads, count);
    PlainArithmetic plain;
    if (threads > 1) {
        std::unique_lock<std::mutex> lock(pool().busy, std::try_to_lock);
        if (lock.owns_lock()) {
            Job job(function, context, count, threads);
            return pool().run(job, threads, scratch);
        }
    }
    thread_local Scratch own;
    function(context, 0, count, own.get(scratch));
    own.shrink();
}

}  // namespace poolgrad
