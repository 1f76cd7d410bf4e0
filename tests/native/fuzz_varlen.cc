// What a fuzzer feeds to the functions of varlen.h, in libFuzzer's form:
// aborts where a property does not hold. Memory errors are the sanitizers'.
//
// Byte 0: bit 0 chooses the packing, bits 1 and 2 what is done with the rest:
// it is decoded as words; or taken as codes, which must come back; or taken as
// codes whose payload is damaged, by the last bytes, before it is decoded.
// Bytes 1 and 2: the number of codes.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "varlen.h"

namespace {

constexpr size_t kMaxCodes = 12000;  // some blocks of huffman243

void Require(bool holds, const char* claim) {
  if (holds) return;
  std::fprintf(stderr, "property does not hold: %s\n", claim);
  std::abort();
}

struct Coder {
  size_t (*capacity)(size_t);
  int (*encode)(const int8_t*, size_t, uint32_t*, size_t, size_t*);
  int (*decode)(const uint32_t*, size_t, int8_t*, size_t);
};

const Coder kCoders[] = {
    {terngrad_bitmap_sign_capacity, terngrad_bitmap_sign_encode,
     terngrad_bitmap_sign_decode},
    {terngrad_huffman243_capacity, terngrad_huffman243_encode,
     terngrad_huffman243_decode}};

// Vectors of just the size: the address sanitizer then sees a word too far.
std::vector<uint32_t> Encode(const Coder& coder,
                             const std::vector<int8_t>& codes, size_t* used) {
  std::vector<uint32_t> words(coder.capacity(codes.size()));
  const int status = coder.encode(codes.data(), codes.size(), words.data(),
                                  words.size(), used);
  Require(status == kTerngradOk, "codes of -1, 0 and 1 can be encoded");
  Require(*used >= 1 && *used <= words.size(), "the capacity is enough");
  return words;
}

// Whatever decodes is what the encoder makes of it.
void Decode(const Coder& coder, const std::vector<uint32_t>& words,
            size_t count) {
  std::vector<int8_t> codes(count);
  const int status =
      coder.decode(words.data(), words.size(), codes.data(), count);
  Require(std::strcmp(terngrad_varlen_message(status), "unknown status") != 0,
          "a status has a message");
  if (status != kTerngradOk) return;
  size_t used = 0;
  std::vector<uint32_t> again = Encode(coder, codes, &used);
  Require(used <= words.size(), "no used word is missing");
  again.resize(words.size());
  Require(again == words, "decoded words are those of the encoder");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 3) return 0;
  const Coder& coder = kCoders[data[0] & 1];
  const size_t count = (data[1] | data[2] << 8) % (kMaxCodes + 1);
  const int task = data[0] >> 1 & 3;
  data += 3;
  size -= 3;
  if (task == 0) {
    std::vector<uint32_t> words(size / 4);
    if (!words.empty()) std::memcpy(words.data(), data, 4 * words.size());
    Decode(coder, words, count);
    return 0;
  }
  std::vector<int8_t> codes(count);
  for (size_t i = 0; i < count && size; ++i) {
    codes[i] = static_cast<int8_t>((data[i % size] + i / size) % 3) - 1;
    // Sparse where the input is long: code words of many lengths.
    if (size > 16 && (i * 7 + data[(i * 31) % size]) % 3) codes[i] = 0;
  }
  size_t used = 0;
  std::vector<uint32_t> words = Encode(coder, codes, &used);
  std::vector<int8_t> back(count);
  words.resize(used);
  Require(coder.decode(words.data(), used, back.data(), count) == kTerngradOk &&
              back == codes,
          "codes come back from the used words");
  if (task == 1 || size < 4) return 0;
  if (task == 3) words.resize((data[3] % 8) * used / 8);
  for (size_t i = 0; i + 3 <= size && i < 12 && !words.empty(); i += 3) {
    const size_t word = (data[i] | data[i + 1] << 8) % words.size();
    words[word] ^= uint32_t{1} << (data[i + 2] % 32);
  }
  Decode(coder, words, count);
  return 0;
}
