/*
 * Any bytes, as etcd's HTTP/2, as one of its messages, and as a value: the properties of
 * wire_properties.h hold.
 */
#include "wire_properties.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    check_bytes(bytes, length);
    return 0;
}
