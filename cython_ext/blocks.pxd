cdef void* borrow(size_t size, size_t* got) except NULL
cdef void give_back(void* block, size_t size) noexcept
