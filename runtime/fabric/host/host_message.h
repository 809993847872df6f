// The conversation of the host fabric is that of every mapping fabric.
#pragma once

#include "runtime/fabric/mapped/message.h"

namespace heddle::host {

using mapped::HandleBody;
using mapped::kHandleMagic;
using mapped::kMessageMagic;
using mapped::kVersion;
using mapped::Message;
using mapped::MessageKind;
using mapped::Nonce;

}  // namespace heddle::host
