#include "memory.h"

#include <map>
#include <mutex>
#include <new>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace poolgrad {

namespace {

constexpr size_t MOST_HELD = size_t(512) << 20;
constexpr size_t MOST_KEPT = size_t(256) << 20;  // of these, what the system may not take back: the blocks given last
constexpr size_t HUGE_PAGE = size_t(2) << 20;

struct Block { void* data; size_t bytes; bool lent; };

struct Store {
    std::mutex mutex;
    std::map<void*, size_t> used;
    std::vector<Block> held;  // oldest first
    size_t held_bytes = 0;
};

// Never destroyed: arrays may outlive the interpreter's teardown.
Store& store() { static Store* s = new Store; return *s; }

#if defined(__linux__)
void* obtain(size_t bytes) {
    void* p = mmap(nullptr, bytes + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return nullptr;
    char* begin = static_cast<char*>(p);
    char* block = begin + (HUGE_PAGE - reinterpret_cast<size_t>(p) % HUGE_PAGE) % HUGE_PAGE;
    if (block > begin) munmap(begin, size_t(block - begin));
    if (size_t rest = size_t(begin + HUGE_PAGE - block)) munmap(block + bytes, rest);
    madvise(block, bytes, MADV_HUGEPAGE);
    return block;
}
void dispose(const Block& b) { munmap(b.data, b.bytes); }
void lend_to_system(const Block& b) { madvise(b.data, b.bytes, MADV_FREE); }
void advise(void* p, size_t bytes) { madvise(p, bytes, MADV_HUGEPAGE); }
#else
void* obtain(size_t bytes) { return ::operator new(bytes, std::align_val_t(64), std::nothrow); }
void dispose(const Block& b) { ::operator delete(b.data, std::align_val_t(64)); }
void lend_to_system(const Block&) {}
void advise(void*, size_t) {}
#endif

// Lending interrupts the other cores once for every page, up to a fifth of the time of the call that made the block, so what the next
// call will take is not lent.
void lend_older(Store& s) {
    size_t kept = 0;
    for (size_t k = s.held.size(); k-- > 0;) {
        Block& b = s.held[k];
        kept += b.bytes;
        if (kept <= MOST_KEPT || b.lent) continue;
        lend_to_system(b);
        b.lent = true;
    }
}

}  // namespace

void* take_block(size_t bytes) {
    bytes = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    Store& s = store();
    std::lock_guard<std::mutex> lock(s.mutex);
    for (size_t k = s.held.size(); k-- > 0;)
        if (s.held[k].bytes >= bytes && s.held[k].bytes - bytes <= bytes / 4) {
            Block b = s.held[k];
            s.used[b.data] = b.bytes;
            s.held.erase(s.held.begin() + long(k));
            s.held_bytes -= b.bytes;
            return b.data;
        }
    void* p = obtain(bytes);
    if (p) s.used[p] = bytes;
    return p;
}

void give_block(void* block) {
    Store& s = store();
    std::lock_guard<std::mutex> lock(s.mutex);
    auto found = s.used.find(block);
    Block b{block, found->second, false};
    s.used.erase(found);
    if (b.bytes > MOST_HELD) return dispose(b);
    while (s.held_bytes + b.bytes > MOST_HELD) {
        s.held_bytes -= s.held.front().bytes;
        dispose(s.held.front());
        s.held.erase(s.held.begin());
    }
    s.held.push_back(b);
    s.held_bytes += b.bytes;
    lend_older(s);
}

void ask_for_huge_pages(void* block, size_t bytes) {
    const size_t skipped = (HUGE_PAGE - reinterpret_cast<size_t>(block) % HUGE_PAGE) % HUGE_PAGE;
    if (bytes < 4 * HUGE_PAGE + skipped) return;
    advise(static_cast<char*>(block) + skipped, (bytes - skipped) / HUGE_PAGE * HUGE_PAGE);
}

size_t held_bytes() {
    std::lock_guard<std::mutex> lock(store().mutex);
    return store().held_bytes;
}

void release_held() {
    Store& s = store();
    std::lock_guard<std::mutex> lock(s.mutex);
    for (const Block& b : s.held) dispose(b);
    s.held.clear();
    s.held_bytes = 0;
}

}  // namespace poolgrad
